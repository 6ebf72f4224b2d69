"""Check each request before it reaches the application: its session, and the page that sent it."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from simcluster.web import login as logins
from simcluster.web.guard import Guard, Refusal, RequestHead
from simcluster.web.login import Login, session_of
from simcluster.web.requests import App, is_json, is_own_page

BODY_LIMIT_BYTES = 64 << 10
COOKIE = "simcluster_ui"
OPEN = ("/", logins.PATH)
STATIC = "/static/"


class UiGuard(Guard):
    """A guard that passes requests for one of *hosts*; with a *login*, only those with a session.

    A request that changes something must have this page's Origin and a JSON body: a form on another
    page cannot send such a request.
    """

    security = MappingProxyType(
        {
            "content-security-policy": (
                # Styles may be inline, since Plotly writes some into the page. Scripts may not:
                # they come only from files of this service.
                "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
                "img-src 'self' data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
            ),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-resource-policy": "same-origin",
            "cross-origin-opener-policy": "same-origin",
            "cache-control": "no-store",
        }
    )

    def __init__(self, app: App, hosts: Collection[str], login: Login | None) -> None:
        super().__init__(app, hosts)
        self._login = login

    def limit_bytes(self, asked: RequestHead) -> int:
        return BODY_LIMIT_BYTES

    def refusal(self, asked: RequestHead) -> Refusal | None:
        site = asked.first("sec-fetch-site") or "none"
        if asked.path.startswith("/api/") and site not in ("same-origin", "none"):
            return 403, "a request from this service's own page"
        if not asked.only_reads:
            if not is_own_page(asked.headers):
                return 403, "the Origin of this service's own page"
            if not is_json(asked.headers):
                return 415, "application/json"
        if self._login is None or asked.path in OPEN or asked.path.startswith(STATIC):
            return None
        if self._login.knows(session_of(asked.headers, COOKIE)):
            return None
        self._login.remind()
        return 401, "a session: open the link that the command printed last"
