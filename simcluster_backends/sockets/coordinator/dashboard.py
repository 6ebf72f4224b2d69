"""The page that shows a run in a browser: one file that fetches nothing except this service's answers.

The page holds no secret, so it needs no token; it fetches its data with the token that the user enters.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

PATH = "/"


@cache
def page() -> bytes:
    """Return the page with style and script inlined."""
    text = _part("dashboard.html").replace("/*STYLE*/", _part("dashboard.css"))
    return text.replace("/*SCRIPT*/", _part("dashboard.js")).encode()


@cache
def headers() -> dict[str, str]:
    """Return headers for the page: run only its own script and style, forbid framing, send no referrer."""
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; script-src {_hash('dashboard.js')}; "
        f"style-src {_hash('dashboard.css')}; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _hash(name: str) -> str:
    digest = hashlib.sha256(_part(name).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _part(name: str) -> str:
    return (resources.files("simcluster_backends.sockets.coordinator") / "page" / name).read_text(encoding="utf-8")
