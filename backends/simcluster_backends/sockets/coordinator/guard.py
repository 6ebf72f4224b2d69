"""The checks before a request is handled: the token or the page's session, and finite numbers."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Collection

from simcluster.web import login as logins
from simcluster.web.guard import Guard, Refusal, RequestHead
from simcluster.web.login import Login, session_of
from simcluster.web.requests import App, is_json, is_own_page

DASHBOARD = "/"
SHOWN = ("/status", "/history", "/config", "/report")
"""The paths that the dashboard reads."""

COOKIE = "simcluster_coordinator"
CODE_LIMIT_BYTES = 4096

MOST_DIGITS = 100
"""The limit on an integer's digits. It allows any seed, and only finite floats."""

BODY_LIMIT_BYTES = 4 * 1024**2


class CoordinatorGuard(Guard):
    """A guard that requires one of *hosts* in the Host header, and *token* as the bearer token.

    The dashboard needs no token, and reads its data with a session of *login*. Without a *login*,
    any page of this origin may read the data.
    """

    def __init__(self, app: App, token: str, hosts: Collection[str], login: Login | None) -> None:
        super().__init__(app, hosts)
        self._token = token
        self._login = login

    def limit_bytes(self, asked: RequestHead) -> int:
        return CODE_LIMIT_BYTES if self._is_login(asked) else BODY_LIMIT_BYTES

    def refusal(self, asked: RequestHead) -> Refusal | None:
        if asked.only_reads and asked.path == DASHBOARD:
            return None
        if asked.only_reads and asked.path in SHOWN and "authorization" not in asked.headers:
            return self._refusal_of_page(asked)
        if self._is_login(asked):
            own = is_own_page(asked.headers) and is_json(asked.headers)
            return None if own else (403, "JSON from this service's own page")
        return None if asked.carries(self._token) else (401, "a bearer token")

    async def refusal_of_body(self, body: bytes) -> Refusal | None:
        wrong = await asyncio.to_thread(_not_a_number, body) if body else ""
        return (400, wrong) if wrong else None

    def _is_login(self, asked: RequestHead) -> bool:
        return self._login is not None and (asked.method, asked.path) == ("POST", logins.PATH)

    def _refusal_of_page(self, asked: RequestHead) -> Refusal | None:
        site = asked.headers.get("sec-fetch-site", [])
        if self._login is None:
            return None if site == ["same-origin"] else (401, "a bearer token, or the page of this service")
        if site in ([], ["same-origin"]) and self._login.knows(session_of(asked.headers, COOKIE)):
            return None
        self._login.remind()
        return 401, "a bearer token, or a session: open the link that the command printed last"


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
    """Return a description of a non-finite or too long number in *body*, or "".

    Python accepts NaN and Infinity as JSON, and reads 1e999 as infinity. Other errors are left to
    the parser of the request.
    """
    try:
        json.loads(body, parse_float=_finite, parse_int=_whole, parse_constant=_finite)
    except _NotFinite as error:
        return f"finite numbers, not {str(error)[:40]}"
    except (ValueError, RecursionError):
        pass
    return ""
