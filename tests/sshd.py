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

from tests.socket_runs import free_port

PROGRAM = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
PRIVILEGE_SEPARATION = Path("/run/sshd")


def why_not() -> str | None:
    """Why there can be no sshd here, if so."""
    if PROGRAM is None or shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        return "no sshd, ssh or ssh-keygen here: apt-get install openssh-server openssh-client"
    if os.geteuid() == 0 and not PRIVILEGE_SEPARATION.is_dir():
        PRIVILEGE_SEPARATION.mkdir(mode=0o755)  # what its service would make before it starts
    return None


@dataclass
class Sshd:
    """*config* is a file for ssh's -F, in which this server is called *host*; *strange* has another host key for it."""

    host: str
    config: Path
    strange: Path
    pid: int


def _keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def _config(folder: Path, name: str, port: int, known_hosts: Path) -> Path:
    file = folder / name
    file.write_text(
        "Host shelf\n"
        f"  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {folder / 'user'}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
    )
    return file


@contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """A server with all it needs in *folder*, until the end of the block."""
    port, public = free_port(), {name: _keygen(folder / name) for name in ("host", "user", "other")}
    (folder / "authorized_keys").write_text(public["user"])
    (folder / "authorized_keys").chmod(0o600)
    for name, key in (("known", public["host"]), ("strangers", public["other"])):
        (folder / name).write_text(f"[127.0.0.1]:{port} {' '.join(key.split()[:2])}\n")
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\nStrictModes no\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nUsePAM no\nPasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\nLogLevel VERBOSE\n"
    )
    command = [str(PROGRAM), "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")]
    with subprocess.Popen(command) as server:
        try:
            for _ in range(500):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.02)
            configs = [_config(folder, f"{name}_config", port, folder / name) for name in ("known", "strangers")]
            yield Sshd("shelf", *configs, server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
