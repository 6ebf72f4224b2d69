"""Checks before the server's application sees a request: the token or the page's session, the page, the body."""

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
"""Paths without a secret."""

CODES: Final = {401: "invalid_api_key", 413: "request_too_large"}


class ServingGuard(Guard):
    """Passes requests that name one of *hosts* and, with a *token*, carry it or come from the page in a session.

    A change must be JSON, which no form of another page can send, and have no Origin but the page's.
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
        self._token, self._login = token, login

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
