"""Addresses and ports: parse, format, classify, listen."""

from __future__ import annotations

import errno
import ipaddress
import socket

from simcluster.errors import Problem, UsageError


def parse_endpoint(text: str, key: str) -> tuple[str, int]:
    """Return (host, port) of "host:port" or "[IPv6]:port". Raise UsageError naming *key*."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(Problem(key, repr(text), "host:port, like 10.0.0.1:7000 or [::1]:0, port 0 to 65535"))
    return host, int(port)


def show_endpoint(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether *host* is reachable from this machine only; no name except localhost counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def open_socket(host: str, port: int, key: str) -> socket.socket:
    """Return a socket listening on *host*:*port*, 0 for any free port. Raise UsageError, naming *key* and the port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family, backlog=256)
    except OSError as error:
        what = (error.strerror or str(error)).partition(" (while ")[0]  # Python appends the address again
        expected = "an address of this machine"
        if error.errno == errno.EADDRINUSE:
            what, expected = f"port {port} is in use", "a free port (0 takes any)"
        raise UsageError(Problem(key, f"{show_endpoint(host, port)} ({what})", expected)) from None
