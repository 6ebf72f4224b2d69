"""Guesses of the next tokens, which the model then checks in one pass: speculative decoding.

A guesser may be a small model (`simcluster.inference.engine.draft`), as in Leviathan et al. 2023. `LookUp` needs none:
its guesses are what followed the last tokens when they occurred before (prompt lookup). They are free, and right where
an answer repeats its prompt or itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from simcluster.inference.engine.queued import Wish
from simcluster.transport import Transport

LONGEST, SHORTEST = 4, 2
"""The tokens at the end that must have occurred before: as many as possible of these."""

FAR: Final = 4096
"""How far back to look."""


class Guesser(Protocol):
    """The guesser of an engine. It changes no token: a guess counts only if the model chooses the same token."""

    async def guesses(
        self, node: Transport, wishes: Sequence[Wish], running: Collection[int]
    ) -> Sequence[tuple[int, ...]]:
        """Return guesses for each of *wishes*, possibly none; its work is that of *node*'s device.

        *running* are the slots of all sequences that have not ended.
        """

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float: ...


class LookUp:
    """The guesser that looks in the text so far."""

    weight_bytes = peak_cache_bytes = 0.0

    async def guesses(
        self, node: Transport, wishes: Sequence[Wish], running: Collection[int]
    ) -> Sequence[tuple[int, ...]]:
        return [looked_up(wish.sequence.tokens, wish.most) for wish in wishes]


def looked_up(tokens: Sequence[int], most: int) -> tuple[int, ...]:
    """Return up to *most* tokens that followed the latest earlier occurrence of the last ones of *tokens*."""
    if most < 1:
        return ()
    recent = tuple(tokens[-FAR:])
    for size in range(LONGEST, SHORTEST - 1, -1):
        end = recent[-size:]
        for start in range(len(recent) - size - 1, -1, -1):
            if recent[start : start + size] == end:
                return recent[start + size : start + size + most]
    return ()
