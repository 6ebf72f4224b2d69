"""Quantities with units, parsed exactly: "1 Gbps" is 125e6 bytes per second, and "0.1 us" is the
float nearest to 1e-7.

A unit is never assumed: b and B differ by a factor of 8, M and Mi differ by 5 %, and a bare 1000
could mean anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

from simcluster.spelling import nearest

Units = Mapping[str, Fraction]
Parse = Callable[[object], float]
Format = Callable[[float], str]


class UnitError(ValueError):
    """The error for a quantity that cannot be parsed. *found* is the invalid string, and *expected*
    describes a valid one.
    """

    def __init__(self, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"found {found}, expected {expected}")


def _scaled(base: Fraction, names: str, step: int = 1000) -> dict[str, Fraction]:
    """Return name -> size for the units *names*: the first has the size *base*, and each further
    one is *step* times as large as the previous one.
    """
    return {name: base * step**power for power, name in enumerate(names.split())}


_BITS = _scaled(Fraction(1, 8), "bps kbps Mbps Gbps Tbps")
_BYTES = _scaled(Fraction(1), "B kB MB GB TB")
_BINARY_BYTES = _scaled(Fraction(1024), "KiB MiB GiB TiB", 1024)

BANDWIDTHS: Units = _BITS | {f"{name}/s": size for name, size in (_BYTES | _BINARY_BYTES).items()}
SIZES: Units = _BYTES | _BINARY_BYTES
TIMES: Units = _scaled(Fraction(1, 10**9), "ns us ms s") | {
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "min": Fraction(60),
    "h": Fraction(3600),
}
RATES: Units = _scaled(Fraction(1), "FLOP/s kFLOP/s MFLOP/s GFLOP/s TFLOP/s PFLOP/s")
AMOUNTS: Units = _scaled(Fraction(1), "FLOP kFLOP MFLOP GFLOP TFLOP PFLOP")
POWERS: Units = _scaled(Fraction(1, 1000), "mW W kW MW")
PRICES: Units = {"USD/h": Fraction(1)}


_SECONDS = {name: TIMES[name] for name in ("ns", "us", "ms", "s")}

# Common misspellings with only one meaning, for hints; `_nearest` handles units in the wrong case.
_MEANT = {
    **{f"{p}{bit}": f"{p}bps" for p in ("", "k", "M", "G", "T") for bit in ("bit/s", "b/s", "bits/s", "bit", "b")},
    **{f"{p}Bps": f"{p}B/s" for p in ("k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti")},
    **{f"{p}{flops}": f"{p}FLOP/s" for p in "kMGTP" for flops in ("FLOPS", "FLOPs", "FLOP", "flops", "Flops")},
    **{"sec": "s", "second": "s", "seconds": "s", "msec": "ms", "usec": "us", "nsec": "ns", "minutes": "min"},
    **{"m": "min", "hour": "h", "hours": "h", "byte": "B", "bytes": "B"},
    **{"watt": "W", "watts": "W", "USD": "USD/h", "$": "USD/h", "$/h": "USD/h", "USD/hour": "USD/h"},
}

_QUANTITY = re.compile(r"\s*([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,4}))?\s*(\S*)\s*", re.ASCII)
# No real quantity has a longer exponent, and 1e999999999 would be computed digit by digit.
_MAX_EXPONENT = 400
_MAX_LENGTH = 100

REMEMBERED = 4096
"""Limit on the cache of parsed strings: even a large cluster has few different quantities."""


def pattern_of(units: Units) -> str:
    """Return a regular expression, in the syntax of JSON schema, that matches a quantity with one
    of *units*.
    """
    names = "|".join(re.escape(name).replace("µ", "\u00b5").replace("μ", "\u03bc") for name in units)
    return rf"^\s*\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*({names})\s*$"


@dataclass(frozen=True, eq=False)
class _QuantityKind:
    what: str
    units: Units
    example: str
    may_be_zero: bool = False


_BANDWIDTH = _QuantityKind("a bandwidth", BANDWIDTHS, "1 Gbps or 125 MB/s")
_BANDWIDTH_OR_ZERO = _QuantityKind(
    "a bandwidth", BANDWIDTHS, "1 Gbps, 125 MB/s or, for a link that is down, 0 bps", may_be_zero=True
)
_LATENCY = _QuantityKind("a time", TIMES, "150 us", may_be_zero=True)
_SIZE = _QuantityKind("a size", SIZES, "16 GB or 64 KiB", may_be_zero=True)


def parse_size(text: object) -> int:
    """Return the size in whole bytes that *text* means: "64 KiB" is 65536. Raise UnitError, a
    ValueError, for any other string.
    """
    size = _parse(text, _SIZE)
    if size.denominator != 1:
        raise UnitError(f"{text!r}, which is {float(size)!r} bytes", "a whole number of bytes")
    return size.numerator


def format_power(power_W: float) -> str:
    """Format watts with four significant digits: "6.5 W"."""
    return _format(_scale(POWERS), power_W) if power_W else "0 W"


def write_amount(flops: int) -> str:
    """Return the shortest string with a whole number that `parse_amount` parses as exactly
    *flops*.
    """
    return min((f"{flops // unit} {name}" for name, unit in AMOUNTS.items() if flops % unit == 0), key=len)


def write_size(size_bytes: int) -> str:
    """Return the shortest string that `parse_size` parses as exactly *size_bytes*."""
    fitting = [f"{size_bytes // unit} {name}" for name, unit in SIZES.items() if size_bytes % unit == 0]
    return min(fitting, key=len) if size_bytes else "0 B"


def _parse_float(kind: _QuantityKind, text: object) -> float:
    return _float_of(text, kind) if isinstance(text, str) else float(_parse(text, kind))


@lru_cache(REMEMBERED)
def _float_of(text: str, kind: _QuantityKind) -> float:
    exact = _exact(text, kind)
    try:
        value = float(exact)
    except OverflowError:
        value = math.inf
    if math.isinf(value) or (value == 0 and exact > 0):
        raise UnitError(repr(text), f"{kind.what} that a 64-bit float can hold")
    return value


def _parse(text: object, kind: _QuantityKind) -> Fraction:
    if isinstance(text, str):
        return _exact(text, kind)
    expected = _expected(kind)
    if text is None or isinstance(text, (bool, list, dict)):
        raise UnitError("nothing" if text is None else f"a {type(text).__name__}", expected)
    raise UnitError(f"{text!r} without a unit", expected)


def _expected(kind: _QuantityKind) -> str:
    return f"{kind.what} with its unit, such as {kind.example}"


@lru_cache(REMEMBERED)
def _exact(text: str, kind: _QuantityKind) -> Fraction:
    expected = _expected(kind)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise UnitError(repr(text[:_MAX_LENGTH]), expected)
    sign, digits, exponent, unit = match.groups()
    if not unit:
        raise UnitError(f"{text!r} without a unit", expected)
    if unit not in kind.units:
        what = kind.what.partition(" ")[2]
        raise UnitError(f"{text!r}", f"{expected}; {unit!r} is no unit of {what}: {_nearest(unit, kind)}")
    if exponent and abs(int(exponent)) > _MAX_EXPONENT:
        raise UnitError(repr(text), f"an exponent of at most {_MAX_EXPONENT}")
    value = Fraction(f"{digits}e{exponent or 0}") * kind.units[unit]
    if sign == "-" and value:
        raise UnitError(f"{text!r}, which is negative", expected)
    if not value and not kind.may_be_zero:
        raise UnitError(f"{text!r}, which is zero", f"{kind.what} above zero")
    return value


def _nearest(unit: str, kind: _QuantityKind) -> str:
    """Return a hint for the unknown *unit*, with the unit of *kind* that was probably meant."""
    if _MEANT.get(unit) in kind.units:
        return f"did you mean {_MEANT[unit]!r}?"
    if unit in ("KB", "KB/s", "kb", "kb/s") and kind is not _LATENCY:
        rest = "/s" if kind.units is BANDWIDTHS else ""
        return f"did you mean 'kB{rest}' (1000 bytes) or 'KiB{rest}' (1024)?"
    if f"{unit}/s" in kind.units:
        return f"did you mean {unit + '/s'!r}?"
    folded = {name.casefold(): name for name in reversed(list(kind.units))}
    meant = {name.casefold(): right for name, right in _MEANT.items() if right in kind.units}
    if unit.casefold() in folded | meant:
        return f"did you mean {(meant | folded)[unit.casefold()]!r}?"
    return nearest(unit, kind.units)


def _format(scale: Mapping[str, float], value: float) -> str:
    fitting = [name for name, unit in scale.items() if abs(value) >= unit]
    name = fitting[-1] if fitting else next(iter(scale))
    if not value:
        name = "s" if "s" in scale else name
    number = f"{value / scale[name]:.4g}"
    # .4g writes 1e+03 for 999.96 and for numbers far above the largest unit; write their digits
    # instead.
    return f"{float(number):.15g} {name}" if "e" in number else f"{number} {name}"


def _write(units: Units, parse: Parse, value: float) -> str:
    candidates = [f"{value / float(unit)!r} {name}".replace(".0 ", " ") for name, unit in units.items()]
    return min((text for text in candidates if _reads_as(text, value, parse)), key=len)


def _reads_as(text: str, value: float, parse: Parse) -> bool:
    try:
        return parse(text) == value
    except UnitError:
        return False


def _scale(units: Units) -> Mapping[str, float]:
    """Return *units* as floats, for formatting."""
    return {name: float(unit) for name, unit in units.items()}


# The functions below parse a string to a number in the base unit. They raise UnitError (a
# ValueError).

parse_bandwidth: Parse = partial(_parse_float, _BANDWIDTH)
"""Parse bytes per second, above zero: "1 Gbps" is 125e6."""
parse_bandwidth_or_zero: Parse = partial(_parse_float, _BANDWIDTH_OR_ZERO)
"""Like `parse_bandwidth`, but zero is valid."""
parse_latency: Parse = partial(_parse_float, _LATENCY)
"""Parse seconds, zero or more: "150 us"."""
parse_rate: Parse = partial(_parse_float, _QuantityKind("a compute rate", RATES, "100 GFLOP/s"))
"""Parse FLOPs per second, above zero: "100 GFLOP/s" is 1e11."""
parse_amount: Parse = partial(_parse_float, _QuantityKind("an amount of arithmetic", AMOUNTS, "13 MFLOP"))
"""Parse FLOPs, above zero: "13 MFLOP" is 13e6."""
parse_power: Parse = partial(_parse_float, _QuantityKind("a power", POWERS, "6.5 W", may_be_zero=True))
"""Parse watts, zero or more: "6.5 W"."""
parse_price: Parse = partial(_parse_float, _QuantityKind("a price", PRICES, "0.5 USD/h", may_be_zero=True))
"""Parse US dollars per hour, zero or more: "0.5 USD/h"."""

# The functions below format a number in the base unit as a string, with four significant digits.

format_bandwidth: Format = partial(_format, _scale(_BITS))
"""Format bytes per second in bits, with decimal prefixes, as links are sold: "1 Gbps"."""
format_latency: Format = partial(_format, _scale(_SECONDS))
"""Format seconds: "150 us"."""
format_size: Format = partial(_format, _scale(_BYTES))
"""Format bytes with decimal prefixes: "1.5 MB"."""
format_rate: Format = partial(_format, _scale(RATES))
"""Format FLOPs per second: "2.9 TFLOP/s"."""
format_memory_bandwidth: Format = partial(_format, {f"{name}/s": size for name, size in _scale(_BYTES).items()})
"""Format bytes per second in bytes, with decimal prefixes, as memory is sold: "120 GB/s"."""

# The functions below return the shortest string that the `parse_` function of the same name parses
# to exactly this float.

write_bandwidth: Format = partial(_write, _BITS | {"B/s": Fraction(1)}, parse_bandwidth)
write_latency: Format = partial(_write, _SECONDS, parse_latency)
write_rate: Format = partial(_write, RATES, parse_rate)
