"""Checks of an HTTP request before an application sees it: the host that it names, and a bounded body."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SANDBOX = (
    # A report may come from elsewhere: its scripts run without this service's origin, and reach nothing.
    "sandbox allow-scripts allow-downloads; default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""The policy of a report: its scripts need no origin."""


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """Return the headers by lower-case name; a client may send one more than once."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower().decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def host_of(header: str) -> str:
    """Return the host of a Host header, without its port; what is no host and port is returned as it is."""
    whole = header.strip().lower()
    host, separator, port = whole.rpartition(":")
    is_bare = whole.count(":") > 1 and not whole.startswith("[")  # an address of IPv6
    return whole if is_bare or not separator or (port and not port.isdigit()) else host


def is_loopback(host: str) -> bool:
    """Return whether *host* is reachable from this machine only; no name except localhost counts."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_page(headers: Mapping[str, list[str]]) -> bool:
    """Return whether a change comes from a page of the service itself: its Origin is the host that was asked."""
    hosts, origins = headers.get("host", []), headers.get("origin", [])
    own = [f"{scheme}://{host.strip().lower()}" for scheme in ("http", "https") for host in hosts]
    return len(origins) == 1 and origins[0].lower() in own


def is_json(headers: Mapping[str, list[str]]) -> bool:
    """Return whether the body is said to be JSON, which no form of another page can send."""
    return (headers.get("content-type") or [""])[0].partition(";")[0].strip() == "application/json"


def is_longer(headers: Mapping[str, list[str]], limit_bytes: int) -> bool:
    """Return whether the body is said to be longer than *limit_bytes*, or to have no valid length."""
    length = (headers.get("content-length") or ["0"])[0]
    return not (length.isascii() and length.isdigit() and len(length) < 20) or int(length) > limit_bytes


async def body_of(receive: Receive, limit_bytes: int) -> bytes | None:
    """Return the whole body; None if it is longer than *limit_bytes*."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            return None
        if not message.get("more_body"):
            return bytes(body)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a callable that gives *body*, which has been read already, and then what *receive* does."""
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def once() -> MutableMapping[str, Any]:
        return next(given, None) or await receive()

    return once


async def refuse(send: Send, code: int, expected: str) -> None:
    """Answer with *code* and a sentence."""
    content = json.dumps({"detail": f"expected {expected}"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if code == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": content})
