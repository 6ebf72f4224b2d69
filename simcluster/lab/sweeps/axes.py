"""Read the values of `--set KEY=VALUES` in a sweep, and combine them.

algorithm.staleness=0,1,4,16                       a list
algorithm.staleness=range(1,9,2)                   1, 3, 5, 7, as Python counts
workload.learning_rate=lin(0.1,0.5,5)              equal steps, both ends included
topology.links.pi5-mini1.bandwidth=log(10Mbps,2.5Gbps,6)   equal ratios
workload.learning_rate=uniform(0.01,0.1,8)         8 draws; loguniform(...) likewise
algorithm.polyak=0.5                               one value: fixed, not swept
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from simcluster import units
from simcluster.documents.yaml import parse_value
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.rng import numpy_stream

_CALL = re.compile(r"\s*([a-z]+)\s*\((.*)\)\s*", re.DOTALL)
_DIGITS, _DRAWN_DIGITS = 4, 6
"""Significant digits of computed and of random values: few, so that people can type them."""

MOST_POINTS = 100_000


@dataclass(frozen=True)
class Axis:
    """A dimension of a sweep.

    The *keys* change together: each entry of *values* has one value per key.
    """

    keys: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


def read_axes(sets: Sequence[str], pairs: Sequence[str] = (), seed: int = 0) -> tuple[dict[str, Any], list[Axis]]:
    """Parse "KEY=VALUES" strings.

    Return (key -> its only value, axes of the keys with several values). All *pairs* form one axis.
    *seed* is the seed of random values. Raise UsageError, with all problems, if a string is invalid
    or a key occurs twice.
    """
    problems: list[Problem] = []
    fixed: dict[str, Any] = {}
    axes: list[Axis] = []
    paired: dict[str, list[Any]] = {}
    for flag, texts in (("--set", sets), ("--pair", pairs)):
        for text in texts:
            key, separator, values_text = text.partition("=")
            key = key.strip()
            if not separator or not key:
                problems.append(Problem(flag, repr(text), "KEY=VALUES"))
                continue
            try:
                values = read_values(values_text, seed, key)
            except UsageError as error:
                problems += [Problem(f"{flag} {key}", p.found, p.expected) for p in error.problems]
                continue
            if flag == "--pair":
                paired[key] = values
            elif len(values) == 1:
                fixed[key] = values[0]
            else:
                axes.append(Axis((key,), tuple((value,) for value in values)))
    lengths = {key: len(values) for key, values in paired.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{length} of {key}" for key, length in lengths.items())
        problems.append(Problem("--pair", found, "equally many values of each key"))
    elif paired:
        axes.append(Axis(tuple(paired), tuple(zip(*paired.values(), strict=True))))
    keys = [*fixed, *(key for axis in axes for key in axis.keys)]
    problems += [Problem("--set", f"{key} twice", "each key once") for key in sorted(set(keys)) if keys.count(key) > 1]
    raise_all(problems)
    return fixed, axes


def combinations(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return every combination of the axes' values; the last axis changes fastest.

    Raise UsageError if there are too many.
    """
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_POINTS:
        raise UsageError("--set", f"{count:,} combinations", f"at most {MOST_POINTS:,}")
    keys = [key for axis in axes for key in axis.keys]
    return [
        dict(zip(keys, [value for values in chosen for value in values], strict=True))
        for chosen in product(*(axis.values for axis in axes))
    ]


def read_values(text: str, seed: int = 0, key: str = "") -> list[Any]:
    """Return the values that *text*, the right side of KEY=VALUES, describes.

    Random values depend on *seed* and *key*. Raise UsageError if *text* is invalid.
    """
    call = _CALL.fullmatch(text)
    if call is None:
        return _distinct([parse_value(part) for part in split(text)])
    name, arguments = call[1], split(call[2])
    if name == "range":
        return _range(arguments)
    if name not in ("lin", "log", "uniform", "loguniform"):
        expected = "values, range(...), lin(...), log(...), uniform(...) or loguniform(...)"
        raise UsageError("", repr(text.strip()), expected)
    if len(arguments) != 3:
        raise UsageError("", f"{len(arguments)} arguments", f"{name}(FIRST, LAST, COUNT)")
    count = parse_value(arguments[2])
    if not isinstance(count, int) or isinstance(count, bool) or not 2 <= count <= MOST_POINTS:
        raise UsageError("", repr(count), f"a count from 2 to {MOST_POINTS:,}")
    return _between(name, arguments[0].strip(), arguments[1].strip(), count, seed, key)


def split(text: str) -> list[str]:
    """Split *text* at its commas, except inside brackets and quotes."""
    parts = [""]
    depth = 0
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def _range(arguments: Sequence[str]) -> list[Any]:
    numbers = [parse_value(argument) for argument in arguments]
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not whole or not 1 <= len(numbers) <= 3 or 0 in numbers[2:]:
        expected = "range(END), range(START,END[,STEP]) of integers"
        raise UsageError("", f"range({', '.join(arguments)})", expected)
    found = range(*numbers)
    # not len(found), which raises OverflowError for 2**63 and above
    count = max(0, -((found.start - found.stop) // found.step))
    if not 1 <= count <= MOST_POINTS:
        raise UsageError("", f"{count} values", f"1 to {MOST_POINTS:,}")
    return list(found)


def _between(name: str, first: str, last: str, count: int, seed: int, key: str) -> list[Any]:
    low, unit_scale, unit = _quantity(first)
    high, _, _ = _quantity(last, unit)
    logarithmic = name.startswith("log")
    if logarithmic and min(low, high) <= 0:
        raise UsageError("", f"{name}({first}, {last})", "ends above 0")
    drawn = name.endswith("uniform")
    even = [number / (count - 1) for number in range(count)]
    shares = numpy_stream(seed, "sweep", key).random(count).tolist() if drawn else even
    values = [low * (high / low) ** share if logarithmic else low + (high - low) * share for share in shares]
    if drawn:
        return [_written(value / unit_scale, unit, _DRAWN_DIGITS) for value in values]
    ends = {0: parse_value(first), count - 1: parse_value(last)}
    return _distinct([ends.get(i, _written(value / unit_scale, unit, _DIGITS)) for i, value in enumerate(values)])


def _quantity(text: str, like: str = "") -> tuple[float, float, str]:
    """Return (value in the base unit, size of its unit, the unit).

    If *like* is a unit, the quantity must be of the same kind. Raise UsageError for an invalid
    quantity.
    """
    value = parse_value(text)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not like:
        return float(value), 1.0, ""
    unit = text.lstrip("+-0123456789.eE ") if isinstance(value, str) else ""
    for parse in _PARSERS:
        try:
            parse(f"1 {like or unit}")
            return float(parse(text)), float(parse(f"1 {unit}")), unit
        except units.UnitError:
            continue
    expected = f"a quantity in a unit like {like}" if like else "a number, or one with a unit"
    raise UsageError("", repr(text), expected)


_PARSERS: tuple[Callable[[object], float], ...] = (
    units.parse_bandwidth, units.parse_latency, units.parse_size, units.parse_rate, units.parse_power,
    units.parse_price,
)  # fmt: skip


def _written(value: float, unit: str, digits: int) -> Any:
    rounded = Decimal(f"{value:.{digits}g}")
    if unit:
        return f"{rounded:f} {unit}"
    return int(rounded) if rounded == int(rounded) and abs(rounded) < 10**9 else float(rounded)


def _distinct(values: list[Any]) -> list[Any]:
    """Return *values*. Raise UsageError if a value occurs twice.

    True and 1 count as different values.
    """
    for number, value in enumerate(values):
        if any(value == other and type(value) is type(other) for other in values[:number]):
            raise UsageError("", f"{value!r} twice", "each value once")
    return values
