"""The login of browsers: a link with a one-time code begins a session."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Literal

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

PATH = "/login"
EXPIRES_S = 600.0
MOST_SESSIONS = 32
WRONG = "this link was used before, has expired, or is not from this command; the command prints a new one"


class Login:
    """The current one-time code, and the sessions that earlier codes have begun.

    *said* is called with each new code. *now* is a monotonic clock in seconds.
    """

    def __init__(self, said: Callable[[str], object], now: Callable[[], float] = time.monotonic) -> None:
        self._said = said
        self._now = now
        self._lock = threading.Lock()
        self._sessions: deque[str] = deque(maxlen=MOST_SESSIONS)
        self._code, self._until_s = "", 0.0

    def renew(self) -> None:
        """Replace the code by a new one, and pass that to *said*."""
        self._code, self._until_s = secrets.token_urlsafe(24), self._now() + EXPIRES_S
        self._said(self._code)

    def remind(self) -> None:
        """Replace the code if it has expired: the user of a browser without a session needs one."""
        with self._lock:
            if self._code and self._now() >= self._until_s:
                self.renew()

    def enter(self, code: str) -> str | None:
        """Return a new session if *code* is the current code, which is then replaced; else None."""
        self.remind()
        with self._lock:
            if not self._code or not hmac.compare_digest(code.encode(errors="replace"), self._code.encode()):
                return None
            self._sessions.append(secrets.token_urlsafe(32))
            self.renew()
            return self._sessions[-1]

    def knows(self, session: str) -> bool:
        """Return whether *session* is one that a code has begun."""
        found = False
        # Compare with all sessions, so that the time reveals nothing.
        for known in list(self._sessions):
            found |= hmac.compare_digest(session.encode(errors="replace"), known.encode())
        return found


class Code(BaseModel):
    """The code of a login link."""

    model_config = ConfigDict(extra="forbid")
    code: Annotated[str, Field(max_length=200)]


def invitation(url: str, code: str) -> str:
    """Return the line to print in the terminal, with a link to *url* that contains *code*.

    The code is in the fragment of the link, which browsers never send to a server.
    """
    return f"open this link, which works once, within {EXPIRES_S / 60:.0f} minutes: {url}/#/login/{code}"


def session_of(headers: Mapping[str, list[str]], cookie: str) -> str:
    """Return the session in the cookie called *cookie*, or ""."""
    try:
        found = SimpleCookie("; ".join(headers.get("cookie", []))).get(cookie)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def add_login(
    api: FastAPI, login: Login | None, cookie: str, *, same_site: Literal["lax", "strict"], is_tls: bool
) -> None:
    """Add to *api* a call that turns a code into a session, in a cookie called *cookie*."""

    @api.post(PATH, include_in_schema=False)
    def enter(given: Code) -> Response:
        session = login.enter(given.code) if login is not None else None
        if session is None:
            return JSONResponse({"detail": WRONG}, 403)
        answer = Response(status_code=204)
        answer.set_cookie(cookie, session, httponly=True, samesite=same_site, secure=is_tls)
        return answer
