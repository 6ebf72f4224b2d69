"""Checks of a request before the application sees it: token or session, origin, and body."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final

from simcluster.lm.serving.web.errors import ApiError, send_json
from simcluster.web import login as logins
from simcluster.web.guard import Guard, Refusal, RequestHead
from simcluster.web.login import Login, session_of
from simcluster.web.requests import App, Send, is_json, is_own_page

BODY_LIMIT_BYTES: Final = 1 << 20
COOKIE: Final = "simcluster_serve"
PAGE: Final = "/"
OPEN: Final = (PAGE, "/health")
"""Paths that can be read without a token or session."""

CODES: Final = {401: "invalid_api_key", 413: "request_too_large"}


class ServingGuard(Guard):
    """A guard that only passes requests to one of *hosts*.

    With a *token*, a request must also carry the token or come from the page with a session of
    *login*. A request that changes something must be JSON, which a form on another page cannot
    send, and must have no Origin except the page's.
    """

    security = MappingProxyType(
        {
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cache-control": "no-store",
        }
    )

    def __init__(self, app: App, hosts: Collection[str], token: str | None, login: Login | None) -> None:
        super().__init__(app, hosts)
        self._token = token
        self._login = login

    def limit_bytes(self, asked: RequestHead) -> int:
        return BODY_LIMIT_BYTES

    def refusal(self, asked: RequestHead) -> Refusal | None:
        if (asked.first("sec-fetch-site") or "none") not in ("same-origin", "none") and asked.path != PAGE:
            return 403, "a request from this service's own page"
        if not asked.only_reads:
            if "origin" in asked.headers and not is_own_page(asked.headers):
                return 403, "the Origin of this service's own page"
            if not is_json(asked.headers):
                return 415, "the content type application/json"
        if self._token is None or asked.path == logins.PATH or (asked.only_reads and asked.path in OPEN):
            return None
        if asked.carries(self._token):
            return None
        if self._login is None:
            return 401, "the server's token as bearer token (api_key)"
        if self._login.knows(session_of(asked.headers, COOKIE)) and (asked.only_reads or is_own_page(asked.headers)):
            return None
        self._login.remind()
        return 401, "the server's token as bearer token (api_key), or on its page a session: open the printed link"

    async def refuse(self, send: Send, code: int, expected: str) -> None:
        body = ApiError(code, f"expected {expected}", CODES.get(code)).to_json()
        await send_json(send, code, body, *([(b"www-authenticate", b"Bearer")] if code == 401 else []))
