"""Lengths of prompts and answers in tokens, either fixed or drawn from a distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.request import MOST_TOKENS
from simcluster.spelling import nearest

FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "fixed": ("tokens",),
    "uniform": ("least", "most"),
    "geometric": ("mean",),
    "lognormal": ("median", "sigma"),
}
"""Distribution -> names of its parameters, in the order in which `KIND:NUMBER:...` gives them.

A number without a kind is a fixed length.
"""

_EXAMPLES: Final = "N, uniform:LEAST:MOST, geometric:MEAN or lognormal:MEDIAN:SIGMA"


@dataclass(frozen=True)
class Length:
    """A distribution of whole numbers. Drawn numbers are clipped to the range 1 to MOST_TOKENS."""

    kind: str
    numbers: tuple[float, ...]

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        """Return *count* random lengths."""
        if self.kind == "fixed":
            return [int(self.numbers[0])] * count
        if self.kind == "uniform":
            least, most = map(int, self.numbers)
            found = random.integers(least, most, count, endpoint=True)
        elif self.kind == "geometric":
            found = random.geometric(1 / self.numbers[0], count)
        else:
            median, sigma = self.numbers
            found = np.rint(random.lognormal(math.log(median), sigma, count))
        return [int(one) for one in np.clip(found, 1, MOST_TOKENS)]


def fixed(tokens: int) -> Length:
    return Length("fixed", (tokens,))


def length_of(text: str, option: str) -> Length:
    """Return the distribution described by *text*, the value of *option*.

    Raise UsageError with all problems if *text* is malformed or a number is out of range.
    """
    kind, *words = text.split(":") if ":" in text else ("fixed", text)
    if kind not in FORMS:
        raise UsageError(option, f"unknown distribution {kind[:40]!r}", nearest(kind, FORMS))
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if len(numbers) != len(FORMS[kind]):
        raise UsageError(option, repr(text[:80]), _EXAMPLES)
    problems = []
    for name, number in zip(FORMS[kind], numbers, strict=True):
        whole = kind in ("fixed", "uniform")
        least, most = (0.0, 10.0) if name == "sigma" else (1.0, float(MOST_TOKENS))
        if not least <= number <= most or (whole and not number.is_integer()):
            expected = f"{name.upper()}, a {'whole ' * whole}number from {least:g} to {most:,.0f}"
            problems.append(Problem(option, repr(text[:80]), expected))
    if not problems and kind == "uniform" and numbers[0] > numbers[1]:
        problems.append(Problem(option, repr(text[:80]), "LEAST not above MOST"))
    raise_all(problems)
    return Length(kind, numbers)
