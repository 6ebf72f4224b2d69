"""Types of the values in a document, with units and limits, for the fields of a `Block`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from pydantic import GetJsonSchemaHandler, PlainValidator

from simcluster.documents.models import Block, WrongValue, refuse, tried
from simcluster.spelling import nearest
from simcluster.units import (
    BANDWIDTHS,
    POWERS,
    PRICES,
    RATES,
    SIZES,
    TIMES,
    UnitError,
    Units,
    parse_bandwidth,
    parse_latency,
    parse_power,
    parse_price,
    parse_rate,
    parse_size,
    pattern_of,
)

N = TypeVar("N", int, float)
Schema = dict[str, Any]
"""A JSON schema."""
BLOCK = "x-block"
LEAST, MOST = 1e-18, 1e30
"""The range of quantities in base units: products and quotients of two of them stay finite."""
MOST_LOST = 0.9
"""The largest share of packets that a link may lose; each further try of a packet costs computing time."""
LOST = f"{MOST_LOST:g} (each further try of a packet is computed)"


class ValueValidator(PlainValidator):
    """A pydantic validator that can also be called as a function.

    *schema* is the JSON schema of the accepted values, or a function that returns it.
    """

    schema: Schema | Callable[[], Schema]
    # `typing` caches annotations and treats equal ones as the same. Two validators with the same
    # function may have different schemas, so compare them by identity.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, check: Callable[[Any], Any], schema: Schema | Callable[[], Schema]) -> None:
        super().__init__(check)
        object.__setattr__(self, "schema", schema)

    def json_schema(self) -> Schema:
        return self.schema() if callable(self.schema) else dict(self.schema)

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> Schema:
        return self.json_schema()

    def __call__(self, value: object) -> Any:
        check: Any = self.func
        return check(value)


def extreme(value: object) -> str:
    """Return the expected range if *value* is too small or too large to compute with, else ""."""
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
"""Parse a time above zero as seconds. Raise UnitError for anything else."""


def block(made: type[Block]) -> ValueValidator:
    """Return a validator that reads a mapping as the block *made*."""
    return ValueValidator(made.read, schema_of(made))


def schema_of(made: type[Block]) -> Schema:
    """Return a placeholder for the schema of *made*; `tools.schemas` replaces it with a reference.

    Here, a reference would fail: pydantic follows only references that it made itself.
    """
    return {BLOCK: made.__name__}


def quantity_schema(units: Units, description: str = "") -> Schema:
    """Return the JSON schema of a string with a number and one of *units*."""
    return {"type": "string", "pattern": pattern_of(units)} | ({"description": description} if description else {})


def quantity(parse: Callable[[object], Any], units: Units, missing: str = "") -> ValueValidator:
    """Return a validator of quantities: a number with one of *units*, converted by *parse*.

    *missing* is the message for an absent value.
    """

    def checked(value: object) -> Any:
        if value is None and missing:
            raise WrongValue(missing)
        found = parse(value)
        if wrong := extreme(found):
            raise WrongValue(wrong)
        return found

    example = f"A number with its unit: {', '.join(units)}."
    return ValueValidator(checked, quantity_schema(units, missing or example))


def number(fits: Callable[[float], bool], expected: str, **limits: float) -> ValueValidator:
    """Return a validator of finite numbers without a unit that satisfy *fits*.

    *limits* are the JSON schema keywords that express *fits*.
    """

    def checked(value: object) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            with suppress(OverflowError):
                found = float(value)
                if math.isfinite(found) and fits(found):
                    return found
        raise WrongValue(expected)

    return ValueValidator(checked, {"type": "number", "description": expected, **limits})


def only(fits: Callable[[Any], object], expected: str, schema: Schema, *, at_key: bool = False) -> ValueValidator:
    """Return a validator that accepts values that satisfy *fits*, and does not convert them.

    *schema* is a JSON schema that expresses *fits*, as far as JSON schema can.
    """

    def checked(value: object) -> object:
        if not fits(value):
            raise WrongValue(expected, at_key=at_key)
        return value

    return ValueValidator(checked, {"description": expected} | schema)


def whole(least: int, most: int, expected: str = "") -> ValueValidator:
    """Return a validator of whole numbers from *least* to *most*."""
    expected = expected or f"a whole number from {least} to {most}"
    schema: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return only(lambda x: type(x) is int and least <= x <= most, expected, schema)


def text(pattern: str | re.Pattern[str], expected: str) -> ValueValidator:
    """Return a validator of strings that fully match *pattern*."""
    whole_text = f"^({pattern.pattern if isinstance(pattern, re.Pattern) else pattern})$"
    schema: Schema = {"type": "string", "pattern": whole_text}
    return only(lambda value: isinstance(value, str) and re.fullmatch(pattern, value), expected, schema)


def one_of(options: Collection[str]) -> ValueValidator:
    """Return a validator of strings that are one of *options*."""

    def checked(value: object) -> str:
        if isinstance(value, str) and value in options:
            return value
        raise WrongValue(nearest(str(value), options))

    return ValueValidator(checked, {"enum": list(options)})


def list_of(made: type[Block], expected: str) -> ValueValidator:
    """Return a validator that reads a list of the blocks *made*."""

    def checked(value: object) -> list[Any]:
        if not isinstance(value, list):
            raise WrongValue(expected)
        return list(_each(made, enumerate(value)).values())

    return ValueValidator(checked, {"type": "array", "items": schema_of(made), "description": expected})


def mapping_of(made: type[Block], expected: str) -> ValueValidator:
    """Return a validator that reads a mapping from names to the blocks *made*."""

    def checked(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise WrongValue(expected)
        return {str(key): read for key, read in _each(made, value.items()).items()}

    return ValueValidator(checked, {"type": "object", "additionalProperties": schema_of(made), "description": expected})


def _each(made: type[Block], items: Iterable[tuple[Any, object]]) -> dict[Any, Any]:
    """Return key -> block for *items*, or raise the faults of all items at once."""
    faults: list[Any] = []
    read = {key: tried(faults, made.read, item, key) for key, item in items}
    refuse(faults)
    return read


Positive = number(lambda x: x > 0, "a number above zero", exclusiveMinimum=0)
bandwidth = quantity(parse_bandwidth, BANDWIDTHS)
time = quantity(positive_time, TIMES)

Bandwidth = Annotated[float, bandwidth]
Time = Annotated[float, time]
Latency = Annotated[float, quantity(parse_latency, TIMES)]
Size = Annotated[int, quantity(parse_size, SIZES)]
PositiveSize = Annotated[int, quantity(_positive(parse_size, "a size"), SIZES)]
Rate = Annotated[float, quantity(parse_rate, RATES)]
Power = Annotated[float, quantity(parse_power, POWERS)]
Price = Annotated[float, quantity(parse_price, PRICES)]
Flag = Annotated[bool, only(lambda value: isinstance(value, bool), "true or false", {"type": "boolean"})]
