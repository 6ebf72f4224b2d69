"""Checks before any other handling of a request: a known host, the token, a small body.

There is no CORS, so no other origin can read an answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections.abc import Collection

from simcluster.web.requests import App, Receive, Scope, Send, body_of, headers_of, host_of, refuse, replayed

MOST_DIGITS = 100
"""Limit of an integer's digits: seeds are long, but must convert to a finite float."""

BODY_LIMIT_BYTES = 4 * 1024**2
TOO_LONG = (413, f"a body of at most {BODY_LIMIT_BYTES} bytes")


class Guard:
    """Passes requests to *app* that name one of *hosts* in the Host header and carry *token* as bearer token.

    Paths in *open_* may be read without a token.
    """

    def __init__(self, app: App, token: str, hosts: Collection[str], open_: Collection[str] = ()) -> None:
        self._app, self._token, self._open = app, token.encode(), frozenset(open_)
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._refusal(scope)
        body = b"" if refusal or self._is_open(scope) else await body_of(receive, BODY_LIMIT_BYTES)
        if refusal is not None or body is None:
            await refuse(send, *(refusal or TOO_LONG))
            return
        if body and (wrong := await asyncio.to_thread(_not_a_number, body)):
            await refuse(send, 400, wrong)
            return
        await self._app(scope, replayed(body, receive), send)

    def _is_open(self, scope: Scope) -> bool:
        """Return whether no token is needed. No body is awaited then: it might never come."""
        return scope["path"] in self._open and scope["method"] in ("GET", "HEAD")

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = headers_of(scope)
        hosts = headers.get("host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return 421, "this service is not called by that name: see --allow-host"
        if self._is_open(scope):
            return None
        kind, _, token = (headers.get("authorization") or [""])[0].partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            return 401, "a bearer token"
        lengths = headers.get("content-length", [])
        if lengths and (not lengths[0].isdigit() or int(lengths[0]) > BODY_LIMIT_BYTES):
            return TOO_LONG
        return None


class _NotFinite(ValueError):
    """A number that is not finite, or too long."""


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFinite(text)
    return value


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise _NotFinite(text)
    return int(text)


def _not_a_number(body: bytes) -> str:
    """Return a description of a non-finite number in *body*, or "". Other errors are found when it is parsed.

    Python accepts NaN and Infinity as JSON, and reads 1e999 as infinity.
    """
    try:
        json.loads(body, parse_float=_finite, parse_int=_whole, parse_constant=_finite)
    except _NotFinite as error:
        return f"finite numbers, not {str(error)[:40]}"
    except (ValueError, RecursionError):
        pass
    return ""
