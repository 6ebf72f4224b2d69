"""The commands for real nodes: `simcluster node`, `coordinator`, `key` and `keys`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from simcluster.backend import real_nodes
from simcluster.cli.terminal.options import AllowHost, ServeTls
from simcluster.errors import Problem, UsageError
from simcluster.logs import setup as logs
from simcluster.process.loading import torch_loads
from simcluster.process.platforms import need_unix

log = logging.getLogger("simcluster.node")

PlainHttp = Annotated[
    bool, Option("--plain-http", help="Let a coordinator's token cross a network unencrypted, where it can be stolen.")
]


def node(
    name: Annotated[str, Argument(metavar="NAME", help="This node's name in the topology file.")],
    join: Annotated[
        str | None, Option(metavar="HOST:PORT", help="The address at which `simcluster run --rendezvous` waits.")
    ] = None,
    key_file: Annotated[
        Path | None, Option(metavar="FILE", help="The shared key, the same file on every machine.")
    ] = None,
    listen: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="The address at which other nodes reach this one; by default a free port on loopback, "
            "or with --coordinator on the address that reaches the run.",
        ),
    ] = None,
    coordinator: Annotated[
        str | None, Option(metavar="URL", help="Instead of --join: the coordinator that lists runs, https://HOST:PORT.")
    ] = None,
    token_file: Annotated[
        Path | None, Option(metavar="FILE", help="The coordinator's token; any file from `simcluster key`.")
    ] = None,
    tls: Annotated[
        Path | None, Option(metavar="FOLDER", help="Use TLS, with this node's files from `simcluster keys init`.")
    ] = None,
    plain_http: PlainHttp = False,
    patience: Annotated[
        float, Option(metavar="SECONDS", help="The timeout for finding a coordinator and a run.")
    ] = 3600.0,
    launched: Annotated[
        bool, Option("--launched", hidden=True, help="For launchers: take orders on standard input.")
    ] = False,
) -> None:
    """Join a run on the sockets backend by hand, from this machine."""
    need_unix("a node")
    if launched:
        # Do this before any large import: the launcher waits for an answer.
        raise typer.Exit(real_nodes().serve_launcher())
    if logs.current() == logs.LogSettings():  # its terminal shows more than a run's does, which has a line of progress
        logs.configure(logs.LogSettings(level="info", component="node"))
    log.info("%s: looks for a run at %s", name, coordinator or join)
    certificates = str(tls) if tls is not None else None
    if coordinator is not None:
        if join is not None or token_file is None:
            expected = "no --join with --coordinator" if join is not None else "it: a coordinator requires it"
            raise UsageError("--join" if join is not None else "--token-file", join or "nothing", expected)
        with torch_loads():
            files = (token_file, key_file, listen, certificates)
            attend = real_nodes().attend(name, coordinator, *files, patience, plain_http)
        raise typer.Exit(attend())
    if join is None or (key_file is None and tls is None):
        missing = [option for option, value in (("--join", join), ("--key-file", key_file or tls)) if value is None]
        raise UsageError([Problem(option, "nothing", "it, or --coordinator and --token-file") for option in missing])
    with torch_loads():
        take_part = real_nodes().join(name, join, key_file, listen, certificates)
    raise typer.Exit(take_part())


def coordinator(
    token_file: Annotated[
        Path, Option(metavar="FILE", help="The token of every call; any file from `simcluster key`.")
    ],
    listen: Annotated[
        str, Option(metavar="HOST:PORT", help="The address to listen on; by default on loopback.")
    ] = "127.0.0.1:52400",
    dead: Annotated[
        float, Option(metavar="SECONDS", help="A worker silent for longer counts as lost; at most 90.")
    ] = 5.0,
    allow_host: AllowHost = None,
    tls: ServeTls = None,
    plain_http: PlainHttp = False,
    login: Annotated[
        bool, Option("--login", help="Ask for the printed link on loopback, too: others may use this machine.")
    ] = False,
) -> None:
    """Run a service at which runs and nodes find each other.

    It reports a run's progress: /status, /history, /metrics, /training/ready.
    """
    certificates = str(tls) if tls is not None else None
    told = partial(print, flush=True)
    real_nodes().coordinate(listen, token_file, dead, allow_host or [], told, certificates, plain_http, login)


keys_app = typer.Typer(help="Certificates for runs over TLS.", no_args_is_help=True, rich_markup_mode=None)


@keys_app.callback()
def _keys() -> None:
    """Certificates for runs over TLS."""
    # Without this callback, typer would call the only command `keys` instead of `keys init`.


@keys_app.command()
def init(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder to write to; existing files are kept.")],
    topology: Annotated[str, Option(metavar="FILE", help="The topology; each of its nodes gets a certificate.")],
    nproc_per_node: Annotated[
        int | None, Option("--nproc-per-node", metavar="N", help="The number of processes on every node.")
    ] = None,
    days: Annotated[int, Option(metavar="N", help="Days until they expire.")] = 365,
    host: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="A name or address under which browsers reach the coordinator, besides localhost. May be repeated.",
        ),
    ] = None,
) -> None:
    """Create a certificate authority and all certificates.

    There is one for each node, the launcher and a coordinator.
    """
    from simcluster.topology import load

    overrides = {} if nproc_per_node is None else {"launch.nproc_per_node": nproc_per_node}
    names = load(topology, overrides=overrides).workers
    for path in real_nodes().make_certificates(folder, names, days, host or []):
        print(path)


def key(file: Annotated[Path, Argument(metavar="FILE", help="The file to write the new key to.")]) -> None:
    """Write a new shared key for runs across machines (mode 0600)."""
    real_nodes().write_new_key(file)
    print(file)
