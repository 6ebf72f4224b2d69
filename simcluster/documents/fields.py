"""Reads one mapping of a document, key by key, and notes every problem instead of stopping at the first."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from simcluster.documents.yaml import MISSING, Document, KeyPath
from simcluster.errors import Problem, nearest
from simcluster.units import UnitError

T = TypeVar("T")

LEAST, MOST = 1e-18, 1e30
"""Quantities that are computed with: a number multiplied or divided by one of them stays a number."""


class Fields:
    """The mapping at *path*, of which only the keys *known* may be there.

    Every getter returns None for what is absent or wrong; only the wrong is a problem.
    """

    def __init__(self, document: Document, path: KeyPath, known: Sequence[str], problems: list[Problem]) -> None:
        self.document, self.path, self.problems = document, path, problems
        found = document.get(path)
        self.is_mapping = isinstance(found, dict)
        self.data: Mapping[str, Any] = found if isinstance(found, dict) else {}
        if not self.is_mapping:
            self.problem(expected=f"a mapping with {', '.join(known)}")
        for key in self.data:
            if key not in known:
                self.unknown(key, known)

    def problem(self, *key: str, expected: str, found: str | None = None, at_key: bool = False) -> None:
        self.problems.append(self.document.problem((*self.path, *key), expected=expected, found=found, at_key=at_key))

    def unknown(self, key: str, known: Iterable[str]) -> None:
        self.problem(key, found="unknown key", expected=nearest(key, known), at_key=True)

    def get(self, key: str) -> Any:
        """The value, MISSING also for null: `port:` with nothing behind it says nothing."""
        value = self.data.get(key)
        return MISSING if value is None else value

    def has(self, key: str) -> bool:
        return self.get(key) is not MISSING

    def quantity(self, key: str, parse: Callable[[object], T]) -> T | None:
        """A number with a unit."""
        if not self.has(key):
            return None
        try:
            value = parse(self.get(key))
        except UnitError as error:
            self.problem(key, found=error.found, expected=error.expected)
            return None
        if wrong := extreme(value):
            self.problem(key, expected=wrong)
            return None
        return value

    def text(self, key: str, pattern: re.Pattern[str], expected: str) -> str | None:
        value = self.get(key)
        if value is MISSING:
            return None
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.problem(key, expected=expected)
        return None

    def choice(self, key: str, options: Iterable[str]) -> str | None:
        value = self.get(key)
        options = list(options)
        if value is MISSING:
            return None
        if isinstance(value, str) and value in options:
            return value
        self.problem(key, expected=f"one of {len(options)} known: {nearest(str(value), options)}")
        return None

    def flag(self, key: str) -> bool | None:
        value = self.get(key)
        if value is MISSING:
            return None
        if isinstance(value, bool):
            return value
        self.problem(key, expected="true or false")
        return None

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self.get(key)
        if value is MISSING:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        self.problem(key, expected=f"a whole number from {low} to {high}")
        return None

    def number(self, key: str, fits: Callable[[float], bool], expected: str) -> float | None:
        value = self.get(key)
        if value is MISSING:
            return None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = _as_float(value)
            if math.isfinite(number) and fits(number):
                return number
        self.problem(key, expected=expected)
        return None


def extreme(value: object) -> str:
    """Return the quantity that *value* should have been if it is too small or large to compute with, else nothing."""
    if not isinstance(value, (int, float)) or not value or LEAST <= abs(value) <= MOST:
        return ""
    return f"a quantity from {LEAST:g} to {MOST:g} in its base unit, or zero"


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
