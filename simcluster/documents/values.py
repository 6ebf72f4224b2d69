"""Types of a document's values, with units and limits, for the fields of a `Block`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator

from simcluster.documents.models import Wrong, refuse, tried
from simcluster.errors import nearest
from simcluster.units import UnitError, parse_bandwidth, parse_latency, parse_power, parse_price, parse_rate, parse_size

N = TypeVar("N", int, float)
LEAST, MOST = 1e-18, 1e30
"""Range of quantities used in computations: multiplying or dividing by them stays finite."""


class Value(PlainValidator):
    """A validator that can also be called as a function."""

    def __call__(self, value: object) -> Any:
        check: Any = self.func
        return check(value)


def extreme(value: object) -> str:
    """Return what to expect instead of *value* if it is too small or large to compute with, else ""."""
    if not isinstance(value, (int, float)) or not value or LEAST <= abs(value) <= MOST:
        return ""
    return f"a quantity from {LEAST:g} to {MOST:g} in its base unit, or zero"


def _positive(parse: Callable[[object], N], what: str) -> Callable[[object], N]:
    def checked(text: object) -> N:
        found = parse(text)
        if not found:
            raise UnitError(f"{text!r}, which is zero", f"{what} above zero")
        return found

    return checked


positive_time = _positive(parse_latency, "a time")
"""Return seconds, above zero. Raise UnitError."""


def quantity(parse: Callable[[object], Any], missing: str = "") -> Value:
    """Validate a number with a unit; *missing* describes what is expected if there is none."""

    def checked(value: object) -> Any:
        if value is None and missing:
            raise Wrong(missing)
        found = parse(value)
        if wrong := extreme(found):
            raise Wrong(wrong)
        return found

    return Value(checked)


def number(fits: Callable[[float], bool], expected: str) -> Value:
    """Validate a finite number without a unit that *fits*."""

    def checked(value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with suppress(OverflowError):
                found = float(value)
                if math.isfinite(found) and fits(found):
                    return found
        raise Wrong(expected)

    return Value(checked)


def only(fits: Callable[[Any], object], expected: str, *, at_key: bool = False) -> Value:
    """Validate a value that *fits*, unchanged."""

    def checked(value: object) -> object:
        if not fits(value):
            raise Wrong(expected, at_key=at_key)
        return value

    return Value(checked)


def whole(least: int, most: int, expected: str = "") -> Value:
    """Validate a whole number."""
    expected = expected or f"a whole number from {least} to {most}"
    return only(lambda x: isinstance(x, int) and not isinstance(x, bool) and least <= x <= most, expected)


def text(pattern: str | re.Pattern[str], expected: str) -> Value:
    """Validate text that fully matches *pattern*."""
    return only(lambda value: isinstance(value, str) and re.fullmatch(pattern, value), expected)


def one_of(options: Collection[str]) -> Value:
    """Validate one of the names *options*."""

    def checked(value: object) -> str:
        if isinstance(value, str) and value in options:
            return value
        raise Wrong(f"one of {len(options)} known: {nearest(str(value), options)}")

    return Value(checked)


def list_of(read: Callable[[Any], Any], expected: str) -> Value:
    """Validate a list, each item by *read*."""

    def checked(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise Wrong(expected)
        found: list[Any] = []
        made = [tried(found, read, item, index) for index, item in enumerate(value)]
        refuse(found)
        return made

    return Value(checked)


def mapping_of(read: Callable[[Any], Any], expected: str) -> Value:
    """Validate a mapping, each value by *read*."""

    def checked(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(expected)
        found: list[Any] = []
        made = {str(key): tried(found, read, item, key) for key, item in value.items()}
        refuse(found)
        return made

    return Value(checked)


Positive = number(lambda x: x > 0, "a number above zero")
bandwidth = quantity(parse_bandwidth)
time = quantity(positive_time)

Bandwidth = Annotated[float, bandwidth]
Time = Annotated[float, time]
Latency = Annotated[float, quantity(parse_latency)]
Size = Annotated[int, quantity(parse_size)]
PositiveSize = Annotated[int, quantity(_positive(parse_size, "a size"))]
Rate = Annotated[float, quantity(parse_rate)]
Power = Annotated[float, quantity(parse_power)]
Price = Annotated[float, quantity(parse_price)]
Flag = Annotated[bool, only(lambda value: isinstance(value, bool), "true or false")]
