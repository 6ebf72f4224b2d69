"""Say which name a misspelt one probably means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

MOST_COMPARED = 5_000
"""Limit on the names that a misspelt word is compared with, since each comparison takes time."""

MOST_CHARACTERS = 100
"""Limit on the characters of a misspelt word that are compared with names."""

MOST_LISTED = 50
"""Limit on the names that an error lists."""


def nearest(word: str, candidates: Iterable[str]) -> str:
    """Return "did you mean 'X'?" for the candidate closest to *word*, or for several that begin
    with it and are equally close, or a list of candidates if none is close.
    """
    options = sorted(islice(candidates, MOST_COMPARED))
    if (meant := closest(word, options)) is not None:
        alike = [name for name in options if word and name.startswith(word) and len(name) == len(meant)]
        if 1 < len(alike) <= MOST_LISTED and meant in alike:
            return f"did you mean {', '.join(map(repr, alike[:-1]))} or {alike[-1]!r}?"
        return f"did you mean {meant!r}?"
    more = ", ..." if len(options) > MOST_LISTED else ""
    return "one of " + ", ".join(options[:MOST_LISTED]) + more if options else "nothing here"


def closest(word: str, candidates: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the candidate that *word* probably misspells, or None if no similarity reaches
    *cutoff*.

    Similarity ranges from 0 to 1, as in difflib.
    """
    word = word[:MOST_CHARACTERS]
    # A name less than half as long as the word cannot be meant, so skip the comparison.
    options = [name for name in islice(candidates, MOST_COMPARED) if 2 * len(name) >= len(word)]
    return next(iter(difflib.get_close_matches(word, options, n=1, cutoff=cutoff)), None)
