"""Hosts that ssh reaches, each with an sshd and a host key, and the processes on each host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from simcluster.topology import Topology
from tests.support.socket_runs import wait_for
from tests.support.sshd import client_config, keygen, server_command
from tools.netns.hosts import Hosts, hosts_of

PORT = 22
LISTENS = f":{PORT:04X} 00000000:0000 0A"
"""The entry of a listening sshd in the kernel's list of TCP sockets."""


@dataclass(frozen=True)
class Shelf:
    """The hosts of a topology, each worker with an sshd.

    *config* is a file for `ssh -F` that maps node names to hosts. *servers* has the process id of
    each sshd, and *spaces* the network namespace of each host.
    """

    hosts: Hosts
    config: Path
    servers: Mapping[str, int]
    spaces: Mapping[str, str]

    def on(self, host: str) -> list[psutil.Process]:
        """Return the processes on *host*, except its sshd and the holder of its namespace."""
        known = {self.hosts.pids[host], self.servers.get(host)}
        return [process for process in inhabitants(self.spaces[host]) if process.pid not in known]


@contextmanager
def shelf_of(topology: Topology, folder: Path) -> Iterator[Shelf]:
    """Make the hosts of *topology*, with an sshd on each worker, until the end of the block.

    Keys and configuration files are in *folder*.
    """
    folder.mkdir()
    (folder / "authorized_keys").write_text(keygen(folder / "user") + "\n")
    (folder / "authorized_keys").chmod(0o600)
    running: dict[str, subprocess.Popen[bytes]] = {}
    with hosts_of(topology) as hosts:
        known = folder / "known_hosts"
        config = folder / "ssh_config"
        names = topology.workers
        known.write_text("".join(f"{hosts.addresses[name]} {keygen(folder / name)}\n" for name in names))
        config.write_text("".join(client_config(folder, name, hosts.addresses[name], PORT, known) for name in names))
        try:
            for name in names:
                words = server_command(folder, name, hosts.addresses[name], PORT)
                running[name] = subprocess.Popen(hosts.command(name, *words))
            sockets = [Path(f"/proc/{hosts.pids[name]}/net/tcp") for name in names]
            wait_for(lambda: all(LISTENS in listed.read_text() for listed in sockets))
            spaces = {name: os.readlink(f"/proc/{pid}/ns/net") for name, pid in hosts.pids.items()}
            yield Shelf(hosts, config, {name: server.pid for name, server in running.items()}, spaces)
        finally:
            for server in running.values():
                server.kill()
                server.wait()


def inhabitants(space: str) -> list[psutil.Process]:
    """Return the processes in the network namespace *space*."""
    return [process for process in psutil.process_iter() if _space_of(process.pid) == space]


def _space_of(pid: int) -> str | None:
    """Return the network namespace of process *pid*, or None if it has just ended or is a
    zombie.
    """
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None
