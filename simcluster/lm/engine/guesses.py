"""Guesses of the next tokens for speculative decoding (Leviathan et al. 2023) by prompt lookup.

A guess repeats the tokens that followed an earlier occurrence of the last tokens. This needs no
second model, and is right where an answer repeats its prompt or itself. The model checks all
guesses in one pass. Guesses never change an answer: a guess is used only if the model chooses the
same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LONGEST, SHORTEST = 4, 2
"""The most and the fewest last tokens to search for. The longest match wins."""

FAR: Final = 4096
"""Number of last tokens to search."""


def looked_up(tokens: Sequence[int], most: int) -> tuple[int, ...]:
    """Return up to *most* tokens that followed an earlier occurrence of the last tokens.

    Prefer a match of LONGEST tokens, then shorter ones down to SHORTEST; among matches of the same
    length, prefer the latest.
    """
    if most < 1:
        return ()
    recent = tuple(tokens[-FAR:])
    for size in range(LONGEST, SHORTEST - 1, -1):
        end = recent[-size:]
        for start in range(len(recent) - size - 1, -1, -1):
            if recent[start : start + size] == end:
                return recent[start + size : start + size + most]
    return ()
