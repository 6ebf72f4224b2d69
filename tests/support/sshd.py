"""A real sshd on loopback for tests: unprivileged, with keys and a port of its own, and an ssh configuration for it."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.socket_runs import free_port

PROGRAM = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
PRIVILEGE_SEPARATION = Path("/run/sshd")


def why_not() -> str | None:
    """Why there can be no sshd here, if so."""
    if PROGRAM is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "no sshd, ssh or ssh-keygen here: apt-get install openssh-server openssh-client"
    if os.geteuid() == 0 and not PRIVILEGE_SEPARATION.is_dir():
        PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)  # what its service would make before it starts
    return None


@dataclass
class Sshd:
    """*config* is a file for ssh's -F, in which this server is called *host*; *strange* has another host key for it."""

    host: str
    config: Path
    strange: Path
    pid: int


def keygen(path: Path) -> str:
    """Makes a key pair at *path*; returns the public one, "TYPE KEY"."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def client_config(folder: Path, alias: str, address: str, port: int, known_hosts: Path) -> str:
    """What ssh is told of a server that it shall call *alias*; the user's key is "user" in *folder*."""
    return (
        f"Host {alias}\n"
        f"  HostName {address}\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder / 'user'}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )


def server_command(folder: Path, host: str, address: str, port: int) -> list[str]:
    """The words that start a server whose key is *host* in *folder*, and who lets in whom "authorized_keys" says."""
    config = folder / f"{host}.sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder / host}\nPidFile none\nStrictModes no\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nLogLevel VERBOSE\n"
    )
    return [str(PROGRAM), "-D", "-f", str(config), "-E", str(folder / f"{host}.log")]


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """A server with all it needs in *folder*, until the end of the block."""
    port, public = free_port(), {name: keygen(folder / name) for name in ("host", "user", "other")}
    (folder / "authorized_keys").write_text(public["user"] + "\n")
    (folder / "authorized_keys").chmod(0o600)
    for name, key in (("known", public["host"]), ("strangers", public["other"])):
        (folder / name).write_text(f"[127.0.0.1]:{port} {key}\n")
        (folder / f"{name}_config").write_text(client_config(folder, "shelf", "127.0.0.1", port, folder / name))
    with subprocess.Popen(server_command(folder, "host", "127.0.0.1", port)) as server:
        try:
            while server.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            yield Sshd("shelf", folder / "known_config", folder / "strangers_config", server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
