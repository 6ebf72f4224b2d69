"""Commands for a real node: join a run by hand, and create its key."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simcluster.topology import load


def join_run(name: str, rendezvous: str, key_file: Path | None, listen: str | None, tls: Path | None = None) -> int:
    """Run as node *name* of the run that waits at *rendezvous* ("host:port"); return the exit code.

    *listen* is the address and port at which other nodes reach this one; by default a free port on loopback.
    """
    sockets: Any = importlib.import_module("simcluster_backends.sockets")
    key = sockets.read_key(key_file) if key_file is not None else sockets.OPEN_KEY
    code: int = sockets.join(name, rendezvous, key, *([listen] if listen else []), tls=str(tls) if tls else None)
    return code


def attend_run(
    name: str,
    coordinator: str,
    token_file: Path,
    key_file: Path | None,
    listen: str | None,
    tls: Path | None,
    patience_s: float,
    plain_http: bool = False,
) -> int:
    """Run as node *name* of the next run that the *coordinator* at a URL has for it; return the exit code."""
    sockets: Any = importlib.import_module("simcluster_backends.sockets")
    attending: Any = importlib.import_module("simcluster_backends.sockets.node.attend")
    certificates = str(tls) if tls is not None else None
    code: int = attending.attend_with_files(
        name, coordinator, token_file, key_file, listen, certificates, patience_s, sockets.join, plain_http
    )
    return code


def coordinate(
    listen: str,
    token_file: Path,
    dead_s: float,
    hosts: list[str],
    told: Callable[[str], None],
    tls: Path | None,
    plain_http: bool,
) -> None:
    """Run a coordinator at *listen* until it is interrupted; call *told* with its URL. Raise UsageError if it cannot
    start.
    """
    reporting: Any = importlib.import_module("simcluster_backends.sockets.launcher.reporting")
    reporting.coordinate(listen, token_file, dead_s, hosts, told, str(tls) if tls is not None else None, plain_http)


def write_key(file: Path) -> Path:
    """Write a new random key to the new *file*, readable only by its owner."""
    sockets: Any = importlib.import_module("simcluster_backends.sockets")
    sockets.write_key(file, sockets.generate_key())
    return file


def write_certificates(
    folder: Path, topology: str, nproc_per_node: int | None, days: int, hosts: list[str]
) -> list[Path]:
    """Create in *folder* an authority and a certificate for each worker of *topology*; return the new files.

    *hosts* are the names under which browsers reach a coordinator, besides localhost.
    """
    overrides = {} if nproc_per_node is None else {"launch.nproc_per_node": nproc_per_node}
    names = load(topology, overrides=overrides).workers
    certificates: Any = importlib.import_module("simcluster_backends.sockets.net.certificates")
    made: list[Path] = certificates.make_certificates(folder, names, days, hosts)
    return made
