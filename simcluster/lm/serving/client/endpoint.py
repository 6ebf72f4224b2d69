"""Where a server takes requests, and the body of one: a prompt of common words, streamed, with token counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from simcluster.errors import Problem, UsageError
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
"""Words that most tokenizers encode, with the space before them, as one token each."""

MOST_TOKEN: Final = 4096
"""Limit on the bytes of a token's file."""


@dataclass(frozen=True)
class Endpoint:
    """The address *url* of a chat or plain completion, and what all requests to it have in common."""

    url: str
    model: str
    token: str | None = field(default=None, repr=False)
    ignore_eos: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """No compressed answer is asked for: it could grow without limit."""
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "text/event-stream", "Accept-Encoding": "identity", **bearer}

    def body(self, request: OfferedRequest, number: int, seed: int) -> dict[str, Any]:
        """Return the JSON of the load's request *number*. Its words depend on *seed*; two share no long prefix."""
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
    """Return the endpoint at *url*: a server, its /v1, or the whole path of chat or plain completions.

    Raise UsageError for another kind of URL, and for a token that would cross a network unencrypted.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:
        host = None
    path = parts.path.rstrip("/") if host else ""
    whole = path.endswith((CHAT, PLAIN)) or path.endswith("/completions")
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise UsageError(Problem("--url", repr(url[:200]), f"http(s)://HOST:PORT, or with a path like {PLAIN}"))
    if token_file is not None and parts.scheme == "http" and not plain_http and not is_loopback(host):
        expected = "https://, or --plain-http: anyone on the path could read the token"
        raise UsageError(Problem("--url", url, expected))
    base = f"{parts.scheme}://{parts.netloc}"
    target = path if whole else path.removesuffix("/v1") + CHAT
    return Endpoint(base + target, model, None if token_file is None else _token(token_file), ignore_eos)


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_TOKEN + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "no ASCII text"
        raise UsageError(Problem("--token-file", f"{path}: {words}", "a file with the server's token")) from None
    if not text.isprintable() or not text or " " in text or len(text) > MOST_TOKEN:
        raise UsageError(Problem("--token-file", str(path), f"one line of at most {MOST_TOKEN:,} characters"))
    return text
