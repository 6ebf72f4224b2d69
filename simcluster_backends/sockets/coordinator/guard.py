"""Checks before any other handling of a request: a known host, the token or the page's session, a small body.

There is no CORS, so no other origin can read an answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from collections.abc import Collection

from simcluster.web import login as logins
from simcluster.web.login import Login, session_of
from simcluster.web.requests import (
    App,
    Receive,
    Scope,
    Send,
    body_of,
    headers_of,
    host_of,
    is_json,
    is_longer,
    is_own_page,
    refuse,
    replayed,
)

DASHBOARD = "/"
SHOWN = ("/status", "/history", "/config", "/report")
"""The paths that the page reads."""

COOKIE = "simcluster_coordinator"
CODE_LIMIT_BYTES = 4096

MOST_DIGITS = 100
"""Limit of an integer's digits: seeds are long, but must convert to a finite float."""

BODY_LIMIT_BYTES = 4 * 1024**2


class Guard:
    """Passes requests to *app* that name one of *hosts* in the Host header and carry *token* as bearer token.

    The page needs no token. It reads with a session of *login*; without a login, any page of this origin may.
    """

    def __init__(self, app: App, token: str, hosts: Collection[str], login: Login | None) -> None:
        self._app, self._token, self._login = app, token.encode(), login
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = headers_of(scope)
        limit_bytes = CODE_LIMIT_BYTES if self._is_login(scope) else BODY_LIMIT_BYTES
        refusal = self._refusal(scope, headers, limit_bytes)
        body = b"" if refusal is not None or self._is_of_page(scope, headers) else await body_of(receive, limit_bytes)
        if refusal is not None or body is None:
            await refuse(send, *(refusal or _too_long(limit_bytes)))
            return
        if body and (wrong := await asyncio.to_thread(_not_a_number, body)):
            await refuse(send, 400, wrong)
            return
        await self._app(scope, replayed(body, receive), send)

    def _is_login(self, scope: Scope) -> bool:
        return self._login is not None and (scope["method"], scope["path"]) == ("POST", logins.PATH)

    def _is_of_page(self, scope: Scope, headers: dict[str, list[str]]) -> bool:
        """Return whether the page only reads. No body is awaited then: it might never come."""
        if scope["method"] not in ("GET", "HEAD"):
            return False
        return scope["path"] == DASHBOARD or (scope["path"] in SHOWN and "authorization" not in headers)

    def _refusal(self, scope: Scope, headers: dict[str, list[str]], limit_bytes: int) -> tuple[int, str] | None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return 421, "this service is not called by that name: see --allow-host"
        if self._is_of_page(scope, headers):
            return None if scope["path"] == DASHBOARD else self._refusal_of_page(headers)
        too_long = _too_long(limit_bytes) if is_longer(headers, limit_bytes) else None
        if self._is_login(scope):
            own = is_own_page(headers) and is_json(headers)
            return too_long if own else (403, "JSON from this service's own page")
        kind, _, token = (headers.get("authorization") or [""])[0].partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            return 401, "a bearer token"
        return too_long

    def _refusal_of_page(self, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        site = headers.get("sec-fetch-site", [])
        if self._login is None:
            return None if site == ["same-origin"] else (401, "a bearer token, or the page of this service")
        if site in ([], ["same-origin"]) and self._login.knows(session_of(headers, COOKIE)):
            return None
        self._login.remind()
        return 401, "a bearer token, or a session: open the link that the command printed last"


def _too_long(limit_bytes: int) -> tuple[int, str]:
    return 413, f"a body of at most {limit_bytes} bytes"


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
