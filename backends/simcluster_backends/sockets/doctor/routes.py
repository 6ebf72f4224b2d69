"""The route that packets from this machine really take, as far as the system tells, and whether anything is there."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import shutil
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass

from simcluster_backends.sockets.net.addresses import facing, ip_of

REACH_S = 5.0
SSH_PORT = 22


@dataclass(frozen=True)
class PacketRoute:
    """How packets to *to* leave this machine; None where the system does not tell."""

    to: str
    source: str
    interface: str | None = None
    gateway: str | None = None


async def route_to(host: str) -> PacketRoute | None:
    """Return the route to *host*, None if there is none."""
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
    """Return why nothing answers at *host*, "" if something does: a refused connection is an answer, too."""
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
    """Return (interface, gateway) as the system's own command tells them."""
    if ip_of(address) is None:
        return None, None
    command = ["route", "-n", "get", address] if sys.platform == "darwin" else ["ip", "-json", "route", "get", address]
    if shutil.which(command[0]) is None:
        return None, None
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    try:
        said, _ = await asyncio.wait_for(process.communicate(), REACH_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None, None
    text = said.decode(errors="replace")
    return read_route_get(text) if sys.platform == "darwin" else read_ip_route(text)


def read_ip_route(text: str) -> tuple[str | None, str | None]:
    """Read (interface, gateway) in what `ip -json route get` prints."""
    try:
        rows = json.loads(text)
        row = rows[0]
        return row.get("dev"), row.get("gateway")
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None, None


def read_route_get(text: str) -> tuple[str | None, str | None]:
    """Read (interface, gateway) in what macOS's `route -n get` prints."""
    found = dict(re.findall(r"^\s*(interface|gateway): (\S+)\s*$", text, re.MULTILINE))
    return found.get("interface"), found.get("gateway")
