"""The address at which a server takes requests, and the bodies of requests.

Prompts consist of common words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from simcluster.errors import UsageError
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.rng import numpy_stream
from simcluster.web.requests import is_loopback

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
_WORDS: Final = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body information"
)
"""Words that, with the space before them, are a single token in most tokenizers."""

MOST_TOKEN: Final = 4096
"""Limit on the bytes of a file with a token."""


@dataclass(frozen=True)
class Endpoint:
    """The address *url* of chat or plain completions, and the settings of all requests to it."""

    url: str
    model: str
    token: str | None = field(default=None, repr=False)
    ignore_eos: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request. They refuse compressed answers, which could be of any size."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "text/event-stream", "Accept-Encoding": "identity", **bearer}

    def body(self, request: OfferedRequest, number: int, seed: int) -> dict[str, Any]:
        """Return the body of request *number* of the load: it asks for a stream and token counts.

        The words of the prompt depend on *seed* and *number*, so that no two prompts share a long
        prefix.
        """
        words = numpy_stream(seed, "load", "words", str(number)).choice(_WORDS.split(), request.prompt_tokens)
        prompt = " ".join(words.tolist())
        chat = {"messages": [{"role": "user", "content": prompt}]}
        return {
            "model": self.model,
            **({"prompt": prompt} if self.url.endswith(PLAIN) else chat),
            "max_tokens": request.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
        }


def endpoint_of(url: str, model: str, token_file: Path | None, plain_http: bool, ignore_eos: bool) -> Endpoint:
    """Return the endpoint at *url*: a server, its /v1, or the path of chat or plain completions.

    Raise UsageError for another kind of URL, if a token would cross a network unencrypted, or if
    *token_file* has no valid token.
    """
    try:
        parts = urlsplit(url)  # reading a port that is not a number raises ValueError
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    path = parts.path.rstrip("/") if host else ""
    whole = path.endswith((CHAT, PLAIN)) or path.endswith("/completions")
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise UsageError("--url", repr(url[:200]), f"http(s)://HOST:PORT, or with a path like {PLAIN}")
    if token_file is not None and parts.scheme == "http" and not plain_http and not is_loopback(host):
        expected = "https://, or --plain-http: anyone on the path could read the token"
        raise UsageError("--url", url, expected)
    base = f"{parts.scheme}://{parts.netloc}"
    target = path if whole else path.removesuffix("/v1") + CHAT
    return Endpoint(base + target, model, None if token_file is None else _token(token_file), ignore_eos)


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_TOKEN + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "no ASCII text"
        raise UsageError("--token-file", f"{path}: {words}", "a file with the server's token") from None
    if not text.isprintable() or not text or " " in text or len(text) > MOST_TOKEN:
        raise UsageError("--token-file", str(path), f"one line of at most {MOST_TOKEN:,} characters")
    return text
