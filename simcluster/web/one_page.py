"""An HTML page in one file: its style and script are inline, and no other script may run."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class OnePage:
    """A page with the placeholders /*STYLE*/ and /*SCRIPT*/ in its *html*.

    The page can send requests only to its own server.
    """

    html: str
    style: str
    script: str

    @property
    def content(self) -> bytes:
        return self.html.replace("/*STYLE*/", self.style).replace("/*SCRIPT*/", self.script).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer: inline script and style only, no framing, no referrer."""
        policy = (
            f"default-src 'none'; connect-src 'self'; img-src data:; script-src {_hash(self.script)}; "
            f"style-src {_hash(self.style)}; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
        )
        return {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
