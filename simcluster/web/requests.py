"""Check an HTTP request before an application sees it: its host, origin and size."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SANDBOX = (
    # A report may come from elsewhere. Sandboxed, its scripts do not have the origin of this
    # service, so they cannot use its session.
    "sandbox allow-scripts allow-downloads; default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a report: its scripts run, but have no origin and no network."""


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """Return lower-case name -> values for the headers of *scope*; a client may repeat a header."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.lower().decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def host_of(header: str) -> str:
    """Return the host in a Host *header*, without the port. Return an invalid header as it is."""
    whole = header.strip().lower()
    host, separator, port = whole.rpartition(":")
    is_bare = whole.count(":") > 1 and not whole.startswith("[")  # an IPv6 address without a port
    return whole if is_bare or not separator or (port and not port.isdigit()) else host


def is_loopback(host: str) -> bool:
    """Return whether *host* is a loopback address or localhost, which only this machine can
    reach.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_page(headers: Mapping[str, list[str]]) -> bool:
    """Return whether a request comes from the service's own page: Origin matches Host."""
    hosts, origins = headers.get("host", []), headers.get("origin", [])
    own = [f"{scheme}://{host.strip().lower()}" for scheme in ("http", "https") for host in hosts]
    return len(origins) == 1 and origins[0].lower() in own


def is_json(headers: Mapping[str, list[str]]) -> bool:
    """Return whether the body is declared as JSON: a form on another site cannot send that."""
    return (headers.get("content-type") or [""])[0].partition(";")[0].strip() == "application/json"


def is_longer(headers: Mapping[str, list[str]], limit_bytes: int) -> bool:
    """Return whether the declared length of the body is above *limit_bytes*, or invalid."""
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
    """Return a callable like *receive* that first returns *body*, which has been read already."""
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def once() -> MutableMapping[str, Any]:
        return next(given, None) or await receive()

    return once


async def refuse(send: Send, code: int, expected: str) -> None:
    """Answer with the HTTP status *code* and JSON that says what was *expected*."""
    content = json.dumps({"detail": f"expected {expected}"}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if code == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": content})
