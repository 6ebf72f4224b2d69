"""Guesses of the next tokens, which the model then checks in one pass (speculative decoding, Leviathan et al. 2023).

They are what followed the last tokens when they occurred before (prompt lookup). They are free, and right where an
answer repeats its prompt or itself. They change no token: a guess counts only if the model chooses the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LONGEST, SHORTEST = 4, 2
"""The tokens at the end that must have occurred before: as many as possible of these."""

FAR: Final = 4096
"""How far back to look."""


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
