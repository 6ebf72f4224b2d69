"""The log-probabilities of an answer's tokens in OpenAI's shapes, each with the text that shows its token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from simcluster.lm.request import Logprobs
from simcluster.lm.serving.web.served import Language


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A *token* of an answer, with its log-probabilities; its text begins after *start* characters."""

    token: int
    start: int
    logprobs: Logprobs


class TokenRows:
    """The rows of an answer's tokens, held back as long as their text is."""

    def __init__(self) -> None:
        self._held = deque[TokenRow]()

    def add(self, row: TokenRow) -> None:
        self._held.append(row)

    def until(self, shown: int) -> list[TokenRow]:
        """Return the next rows, of tokens with some text among the first *shown* characters."""
        return list(self._taken(shown))

    def rest(self) -> list[TokenRow]:
        """Return all further rows, at the end of an answer."""
        found = list(self._held)
        self._held.clear()
        return found

    def _taken(self, shown: int) -> Iterator[TokenRow]:
        while self._held and self._held[0].start < shown:
            yield self._held.popleft()


def shaped(kind: Literal["chat", "text"], rows: Sequence[TokenRow], language: Language) -> dict[str, Any] | None:
    """Return *rows* as a choice of *kind* has them; None without any."""
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
        "tokens": [language.decode([row.token]) for row in rows],
        "token_logprobs": [row.logprobs.own for row in rows],
        "top_logprobs": [_by_text(row, language) for row in rows],
        "text_offset": [row.start for row in rows],
    }


def _entry(token: int, value: float, language: Language) -> dict[str, Any]:
    return {"token": language.decode([token]), "logprob": value, "bytes": list(language.octets([token]))}


def _by_text(row: TokenRow, language: Language) -> dict[str, float]:
    """Return the log-probabilities by text, of the chosen token too; of tokens with one text, the likeliest's."""
    found: dict[str, float] = {}
    for token, value in (*row.logprobs.top, (row.token, row.logprobs.own)):
        found.setdefault(language.decode([token]), value)
    return found
