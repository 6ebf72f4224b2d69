"""The log-probabilities of an answer's tokens, in OpenAI's shapes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from simcluster.lm.request import Logprobs
from simcluster.lm.serving.web.served_model import Language


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A *token* of an answer with log-probabilities. Its text begins after *start* characters."""

    token: int
    start: int
    logprobs: Logprobs


class TokenRows:
    """The rows of an answer's tokens. Each row waits as long as its token's text is held back."""

    def __init__(self) -> None:
        self._waiting = deque[TokenRow]()

    def add(self, row: TokenRow) -> None:
        self._waiting.append(row)

    def until(self, shown: int) -> list[TokenRow]:
        """Return the next rows: those of tokens with text in the first *shown* characters."""
        return list(self._take(shown))

    def rest(self) -> list[TokenRow]:
        """Return all remaining rows, at the end of an answer."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def _take(self, shown: int) -> Iterator[TokenRow]:
        while self._waiting and self._waiting[0].start < shown:
            yield self._waiting.popleft()


def shaped(kind: Literal["chat", "text"], rows: Sequence[TokenRow], language: Language) -> dict[str, Any] | None:
    """Return *rows* in the shape of a choice of *kind*, or None if there are none."""
    if not rows:
        return None
    if kind == "chat":
        content = [
            _entry(row.token, row.logprobs.own, language)
            | {"top_logprobs": [_entry(token, value, language) for token, value in row.logprobs.top]}
            for row in rows
        ]
        return {"content": content, "refusal": None}
    return {
        "tokens": [_text(row.token, language) for row in rows],
        "token_logprobs": [row.logprobs.own for row in rows],
        "top_logprobs": [_by_text(row, language) for row in rows],
        "text_offset": [row.start for row in rows],
    }


def _entry(token: int, value: float, language: Language) -> dict[str, Any]:
    return {"token": _text(token, language), "logprob": value, "bytes": list(language.octets([token]))}


def _by_text(row: TokenRow, language: Language) -> dict[str, float]:
    """Return text -> log-probability, for the likeliest tokens and the chosen one.

    If several tokens have the same text, the likeliest one counts.
    """
    found: dict[str, float] = {}
    for token, value in (*row.logprobs.top, (row.token, row.logprobs.own)):
        found.setdefault(_text(token, language), value)
    return found


def _text(token: int, language: Language) -> str:
    """Return the text of *token*, with the spaces that it loses at the beginning of an answer."""
    return language.octets([token]).decode("utf-8", "replace")
