"""Parse, format and classify addresses, listen at them, and find this machine's own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcluster.errors import UsageError
from simcluster_backends.sockets.net.ssh import Ssh, host_name

if TYPE_CHECKING:
    from simcluster.job import Remote

EXPECTED = "--rendezvous HOST:PORT, an address of this machine that all nodes can reach"
ASK_S = 10.0


def parse_endpoint(text: str, key: str) -> tuple[str, int]:
    """Return (host, port) of "host:port" or "[IPv6]:port". Raise UsageError, naming *key*, for any
    other string.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(key, repr(text), "host:port, like 10.0.0.1:7000 or [::1]:0, port 0 to 65535")
    return host, int(port)


def show_endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return *host* as an IP address, or None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_wildcard(host: str) -> bool:
    ip = ip_of(host)
    return ip is not None and ip.is_unspecified


def open_socket(host: str, port: int, key: str) -> socket.socket:
    """Return a socket that listens on *host*:*port*; port 0 is any free one.

    If that fails, raise UsageError, naming *key* and the port.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=256)
    except OSError as error:
        what = (error.strerror or str(error)).partition(" (while ")[0]  # Python appends the address again
        expected = "an address of this machine"
        if error.errno == errno.EADDRINUSE:
            what, expected = f"port {port} is in use", "a free port (0 takes any)"
        raise UsageError(key, f"{show_endpoint(host, port)} ({what})", expected) from None


def facing(host: str) -> str | None:
    """Return the local address from which packets to *host* leave; None if there is no route.

    This sends no packet: connecting a datagram socket only chooses its local address.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def listen_towards(listen: str, rendezvous: str) -> str:
    """Return *listen*, or if it is "", port 0 at the local address that faces *rendezvous*."""
    if listen:
        return listen
    host = facing(parse_endpoint(rendezvous, "rendezvous")[0]) or "127.0.0.1"
    return f"[{host}]:0" if ":" in host else f"{host}:0"


async def meeting_host(remotes: Sequence[Remote], ssh: Ssh) -> str:
    """Return the one address of this machine that faces all *remotes*.

    Raise UsageError if there is no such address, or more than one.
    """
    places: dict[str, str] = {}
    for remote in remotes:
        host = remote.address or await resolved(remote.ssh, ssh)
        address = facing(host) if host is not None else None
        if address is None:
            raise UsageError("rendezvous", f"no route from here to {host or remote.ssh}", EXPECTED)
        places.setdefault(address, host or remote.ssh)
    if len(places) > 1:
        ways = ", ".join(f"{address} towards {host}" for address, host in places.items())
        raise UsageError("rendezvous", f"several addresses of this machine: {ways}", EXPECTED)
    return next(iter(places))


async def resolved(target: str, ssh: Ssh) -> str | None:
    """Return the host to which ssh connects for *target* with the user's configuration.

    Return None if the connection goes through another host.
    """
    answer = await output_of(ssh.asking(target), ASK_S)
    return host_name(answer) if answer is not None else None


async def output_of(command: Sequence[str], limit_s: float) -> str | None:
    """Return the output of *command*; None if it fails or takes longer than *limit_s*."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), limit_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return output.decode(errors="replace") if process.returncode == 0 else None
