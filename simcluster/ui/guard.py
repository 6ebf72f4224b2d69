"""Checks before the page's application sees a request: the host, who asks, from which page, and a small body."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

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

BODY_LIMIT_BYTES = 64 << 10
TOO_LONG = (413, f"a body of at most {BODY_LIMIT_BYTES} bytes")
COOKIE = "simcluster_ui"
OPEN = ("/", logins.PATH)
STATIC = "/static/"

SECURITY = {
    "content-security-policy": (
        # Plotly writes styles into the page; scripts come from this service's files only.
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
        "img-src 'self' data: blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Passes requests to *app* that name one of *hosts*, and, with a *login*, have a session.

    A request that changes something must come from this service's own page, and be JSON: a form of another page can
    send neither.
    """

    def __init__(self, app: App, hosts: Collection[str], login: Login | None) -> None:
        self._app, self._login = app, login
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def secured(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message.get("headers", ())}
                more = [(n.encode(), v.encode()) for n, v in SECURITY.items() if n.encode() not in given]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        refusal = self._refusal(scope, headers_of(scope))
        changes = scope["method"] not in ("GET", "HEAD")
        body = await body_of(receive, BODY_LIMIT_BYTES) if refusal is None and changes else b""
        if refusal is not None or body is None:
            await refuse(secured, *(refusal or TOO_LONG))
            return
        await self._app(scope, replayed(body, receive), secured)

    def _refusal(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        hosts = headers.get("host", [])
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            return 421, "a name of this service: see --allow-host"
        site = (headers.get("sec-fetch-site") or ["none"])[0]
        path, changes = scope["path"], scope["method"] not in ("GET", "HEAD")
        if path.startswith("/api/") and site not in ("same-origin", "none"):
            return 403, "a request from this service's own page"
        if changes:
            if not is_own_page(headers):
                return 403, "the Origin of this service's own page"
            if not is_json(headers):
                return 415, "application/json"
            if is_longer(headers, BODY_LIMIT_BYTES):
                return TOO_LONG
        if self._login is None or path in OPEN or path.startswith(STATIC):
            return None
        if self._login.knows(session_of(headers, COOKIE)):
            return None
        self._login.remind()
        return 401, "a session: open the link that the command printed last"
