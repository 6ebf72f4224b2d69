"""The text of an answer as its tokens arrive, up to the first stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Decoder(Protocol):
    """A converter of tokens to text. It never returns half a character."""

    def push(self, token: int) -> str: ...
    def end(self) -> str: ...


class AnswerText:
    """The text of an answer for a client. Text that may begin one of *stops* is held back.

    *ends* are tokens without text. *decoded* is the number of characters of all tokens so far,
    *shown* the number of characters that have been returned.
    """

    def __init__(self, decoder: Decoder, ends: Collection[int], stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._ends = ends
        self._stops = stops
        self._pending = ""  # text that is held back
        self.is_stopped = False
        self.decoded = 0
        self.shown = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Return the text that *tokens* add, up to the first stop string."""
        return "".join(self._pass(self._decoder.push(token)) for token in tokens if token not in self._ends)

    def end(self) -> str:
        """Return the text that is still held back, at the end of the answer."""
        text = self._pass(self._decoder.end())
        pending, self._pending = self._pending, ""
        if self.is_stopped:
            return text
        self.shown += len(pending)
        return text + pending

    def _pass(self, text: str) -> str:
        if self.is_stopped or not text:
            return ""
        self.decoded += len(text)
        pending = self._pending + text
        found = [place for stop in self._stops if (place := pending.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            self._pending = ""
            free = min(found)
        else:
            free = len(pending) - max((_overlap(pending, stop) for stop in self._stops), default=0)
            self._pending = pending[free:]
        self.shown += free
        return pending[:free]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of *stop* that *text* ends with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
