"""The guard of an HTTP service: a known host, a permitted caller, a small body.

There is no CORS, so no other origin can read an answer.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from simcluster.web.requests import App, Receive, Scope, Send, body_of, headers_of, host_of, is_longer, refuse, replayed

Refusal: TypeAlias = tuple[int, str]
"""HTTP's code, and what was expected."""

ELSEWHERE = (421, "a name of this service: see --allow-host")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: str
    path: str
    headers: Mapping[str, list[str]]

    @property
    def only_reads(self) -> bool:
        return self.method in ("GET", "HEAD")

    def first(self, name: str) -> str:
        """Return the first header of that name, or ""."""
        return (self.headers.get(name) or [""])[0]

    def carries(self, token: str) -> bool:
        """Return whether *token* is the bearer token."""
        kind, _, given = self.first("authorization").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), token.encode())


class Guard(ABC):
    """Passes requests to *app* that name one of *hosts* in the Host header and that the service does not refuse."""

    security: Mapping[str, str] = MappingProxyType({})
    """Headers of every answer that has none of that name."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    @abstractmethod
    def refusal(self, asked: RequestHead) -> Refusal | None:
        """Return why the request is refused by its head, None if it is not."""

    @abstractmethod
    def limit_bytes(self, asked: RequestHead) -> int:
        """Return the limit of the body."""

    async def refusal_of_body(self, body: bytes) -> Refusal | None:
        """Return why the request is refused by its body, None if it is not."""
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
        if refusal is None and not asked.only_reads:  # the body of a question might never come
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
