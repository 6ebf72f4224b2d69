"""The guard of an HTTP service: it requires a known host, a permitted caller and a small body.

The service sends no CORS headers, so pages of other origins cannot read its answers.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from simcluster.web.requests import App, Receive, Scope, Send, body_of, headers_of, host_of, is_longer, refuse, replayed

Refusal = tuple[int, str]
"""(HTTP status code, what was expected)."""

ELSEWHERE = (421, "a name of this service: see --allow-host")
"""The refusal of a request to another host name: 421 is "Misdirected Request"."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The method, path and headers of a request."""

    method: str
    path: str
    headers: Mapping[str, list[str]]

    @property
    def only_reads(self) -> bool:
        return self.method in ("GET", "HEAD")

    def first(self, name: str) -> str:
        """Return the first header called *name*, or ""."""
        return (self.headers.get(name) or [""])[0]

    def carries(self, token: str) -> bool:
        """Return whether the request has *token* as its bearer token."""
        # compare_digest takes the same time for every wrong token, so timing reveals nothing.
        kind, _, given = self.first("authorization").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token.encode())


class Guard(ABC):
    """An ASGI application that passes permitted requests on to *app*.

    The Host header of a request must name one of *hosts*: this stops DNS rebinding. A subclass has
    further conditions.
    """

    security: Mapping[str, str] = MappingProxyType({})
    """Headers that are added to every answer, unless it has a header of the same name."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    @abstractmethod
    def refusal(self, asked: RequestHead) -> Refusal | None:
        """Return the refusal of a request because of its head, None if it is permitted."""

    @abstractmethod
    def limit_bytes(self, asked: RequestHead) -> int:
        """Return the limit on the bytes of the request's body."""

    async def refusal_of_body(self, body: bytes) -> Refusal | None:
        """Return the refusal of a request because of its body, None if it is permitted."""
        return None

    async def refuse(self, send: Send, code: int, expected: str) -> None:
        await refuse(send, code, expected)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message.get("headers", ())}
                more = [(n.encode(), v.encode()) for n, v in self.security.items() if n.encode() not in given]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        asked = RequestHead(scope["method"], scope["path"], headers_of(scope))
        limit_bytes = self.limit_bytes(asked)
        refusal = self._refusal(asked, limit_bytes)
        body = b""
        # Do not wait for the body of a GET: it might never come.
        if refusal is None and not asked.only_reads:
            given = await body_of(receive, limit_bytes)
            refusal = await self.refusal_of_body(given) if given is not None else _too_long(limit_bytes)
            body = given or b""
        if refusal is not None:
            await self.refuse(secured, *refusal)
            return
        await self._app(scope, replayed(body, receive), secured)

    def _refusal(self, asked: RequestHead, limit_bytes: int) -> Refusal | None:
        hosts = asked.headers.get("host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return ELSEWHERE
        return self.refusal(asked) or (_too_long(limit_bytes) if is_longer(asked.headers, limit_bytes) else None)


def _too_long(limit_bytes: int) -> Refusal:
    return 413, f"a body of at most {limit_bytes} bytes"
