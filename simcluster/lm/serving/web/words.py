"""The text of an answer as its tokens arrive, up to the first stop string."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Decoder(Protocol):
    """Turns tokens into text; never half a character."""

    def push(self, token: int) -> str: ...
    def end(self) -> str: ...


class AnswerText:
    """Text for a client. What may be the beginning of one of *stops* is held back; *ends* are tokens without text.

    *decoded* counts the characters of all tokens, *shown* those that have been returned.
    """

    def __init__(self, decoder: Decoder, ends: Collection[int], stops: Sequence[str]) -> None:
        self._decoder, self._ends, self._stops = decoder, ends, stops
        self._held = ""
        self.is_stopped = False
        self.decoded = self.shown = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Return the text that *tokens* add; nothing after a stop string."""
        return "".join(self._pass(self._decoder.push(token)) for token in tokens if token not in self._ends)

    def end(self) -> str:
        """Return the text that was held back, at the end of the answer."""
        text = self._pass(self._decoder.end())
        held, self._held = self._held, ""
        if self.is_stopped:
            return text
        self.shown += len(held)
        return text + held

    def _pass(self, text: str) -> str:
        if self.is_stopped or not text:
            return ""
        self.decoded += len(text)
        held = self._held + text
        found = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        if found:
            self.is_stopped, self._held, free = True, "", min(found)
        else:
            free = len(held) - max((_overlap(held, stop) for stop in self._stops), default=0)
            self._held = held[free:]
        self.shown += free
        return held[:free]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of *text* that *stop* begins with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
