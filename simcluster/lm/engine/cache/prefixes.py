"""Prompts with kept keys and values, so that a later prompt with the same beginning need not be computed again.

Prefixes are shared in whole chunks, as they were prefilled. So the numbers that a request finds are, bit for bit, those
that it would have computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Prefixes:
    """Prompts by name, the least recently used first, compared in chunks of *chunk* tokens."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._kept: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._kept))

    def keep(self, name: int, prompt: Sequence[int]) -> bool:
        """Keep the whole chunks of *prompt*; return False if it has none."""
        whole = len(prompt) - len(prompt) % self._chunk
        if whole:
            self._kept[name] = tuple(prompt[:whole])
        return whole > 0

    def hold(self, name: int) -> None:
        """Name the latest of all; nothing of it is shared."""
        self._kept[name] = ()

    def longest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return the name of the prompt that has most chunks in common with *tokens*, and their length; or (-1, 0).

        At least one token is left to compute. The latest counts among equals, and is used now.
        """
        best, most = -1, 0
        for name, kept in self._kept.items():
            common, limit = 0, min(len(kept), len(tokens) - 1)
            while common + self._chunk <= limit and self._same(kept, tokens, common):
                common += self._chunk
            if common and common >= most:
                best, most = name, common
        if best >= 0:
            self._kept[best] = self._kept.pop(best)
        return best, most

    def drop(self, name: int) -> None:
        """Forget the prompt *name*."""
        del self._kept[name]

    def _same(self, kept: tuple[int, ...], tokens: Sequence[int], start: int) -> bool:
        return kept[start : start + self._chunk] == tuple(tokens[start : start + self._chunk])
