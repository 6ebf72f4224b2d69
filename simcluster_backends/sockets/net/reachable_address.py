"""The address at which another machine can reach this one.

No packet is sent to find out: a connected datagram socket has a local address.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcluster.errors import Problem, UsageError
from simcluster_backends.sockets.net.addresses import parse_endpoint
from simcluster_backends.sockets.net.ssh import Ssh, host_name

if TYPE_CHECKING:
    from simcluster.experiment.job import Remote

EXPECTED = "--rendezvous HOST:PORT, an address of this machine that all nodes can reach"
ASK_S = 10.0


def facing(host: str) -> str | None:
    """Return the local address from which packets to *host* leave; None if there is no route."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def listen_towards(listen: str, rendezvous: str) -> str:
    """Return *listen*, or if that is "" any free port at the address from which *rendezvous* is reached."""
    if listen:
        return listen
    host = facing(parse_endpoint(rendezvous, "rendezvous")[0]) or "127.0.0.1"
    return f"[{host}]:0" if ":" in host else f"{host}:0"


async def meeting_host(remotes: Sequence[Remote], ssh: Ssh) -> str:
    """Return the one address of this machine that faces all *remotes*. Raise UsageError if there is none."""
    places: dict[str, str] = {}
    for remote in remotes:
        host = remote.address or await _resolved(remote.ssh, ssh)
        address = facing(host) if host is not None else None
        if address is None:
            raise UsageError(Problem("rendezvous", f"no route from here to {host or remote.ssh}", EXPECTED))
        places.setdefault(address, host or remote.ssh)
    if len(places) > 1:
        ways = ", ".join(f"{address} towards {host}" for address, host in places.items())
        raise UsageError(Problem("rendezvous", f"several addresses of this machine: {ways}", EXPECTED))
    return next(iter(places))


async def _resolved(target: str, ssh: Ssh) -> str | None:
    """Return the host that ssh, by the user's configuration, connects to for *target*."""
    process = await asyncio.create_subprocess_exec(
        *ssh.asking(target), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        answer, _ = await asyncio.wait_for(process.communicate(), ASK_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return host_name(answer.decode(errors="replace")) if process.returncode == 0 else None
