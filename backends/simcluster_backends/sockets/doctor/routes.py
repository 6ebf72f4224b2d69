"""Find the route that packets from this machine take, and whether a host answers."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import shutil
import socket
import sys
from dataclasses import dataclass

from simcluster_backends.sockets.net.addresses import facing, ip_of, output_of

REACH_S = 5.0
SSH_PORT = 22


@dataclass(frozen=True)
class PacketRoute:
    """The route by which packets to the address *to* leave this machine.

    *interface* and *gateway* are None if the system does not report them.
    """

    to: str
    source: str
    interface: str | None = None
    gateway: str | None = None


async def route_to(host: str) -> PacketRoute | None:
    """Return the route to *host*, or None if there is none."""
    try:
        async with asyncio.timeout(REACH_S):
            loop = asyncio.get_running_loop()
            address = str((await loop.getaddrinfo(host, 9, type=socket.SOCK_DGRAM))[0][4][0])
    except (OSError, TimeoutError):
        return None
    source = facing(address)
    if source is None:
        return None
    interface, gateway = await _told(address)
    return PacketRoute(address, source, interface, gateway)


async def why_unreachable(host: str, port: int) -> str:
    """Return the reason for which *host* does not answer at *port*, or "" if it does.

    A refused connection also counts as an answer. Port 0 stands for ssh's port.
    """
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(host, port or SSH_PORT)
    except ConnectionRefusedError:
        return ""
    except TimeoutError:
        return f"no answer within {REACH_S:g} s"
    except OSError as error:
        unknown = isinstance(error, socket.gaierror)
        return "an unknown name" if unknown else (error.strerror or errno.errorcode.get(error.errno or 0, str(error)))
    writer.close()
    return ""


async def _told(address: str) -> tuple[str | None, str | None]:
    """Return (interface, gateway) of the route to *address*, as the system's own command says."""
    if ip_of(address) is None:
        return None, None
    command = ["route", "-n", "get", address] if sys.platform == "darwin" else ["ip", "-json", "route", "get", address]
    if shutil.which(command[0]) is None:
        return None, None
    text = await output_of(command, REACH_S) or ""
    return read_route_get(text) if sys.platform == "darwin" else read_ip_route(text)


def read_ip_route(text: str) -> tuple[str | None, str | None]:
    """Return (interface, gateway) from the output *text* of `ip -json route get`."""
    try:
        rows = json.loads(text)
        row = rows[0]
        return row.get("dev"), row.get("gateway")
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None, None


def read_route_get(text: str) -> tuple[str | None, str | None]:
    """Return (interface, gateway) from the output *text* of macOS's `route -n get`."""
    found = dict(re.findall(r"^\s*(interface|gateway): (\S+)\s*$", text, re.MULTILINE))
    return found.get("interface"), found.get("gateway")
