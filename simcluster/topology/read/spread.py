"""Read the spread of measured numbers from a topology document."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from simcluster.documents.models import Block, Faults, Given, WrongValue, fault
from simcluster.documents.values import ValueValidator, quantity_schema, schema_of
from simcluster.topology.model.spread import Factors, Spread
from simcluster.units import TIMES, parse_latency

LEAST_ROUNDS = 2
MOST_ROUNDS = 1000
MOST_FACTOR = 1000.0
EXPECTED = (
    f"a list of {LEAST_ROUNDS} to {MOST_ROUNDS} factors, one for each round of a calibration, each above 0 and at most "
    f"{MOST_FACTOR:g}"
)


def _fits(value: object, least: float) -> bool:
    if not isinstance(value, list) or not LEAST_ROUNDS <= len(value) <= MOST_ROUNDS:
        return False
    return all(type(factor) in (int, float) and least <= factor <= MOST_FACTOR for factor in value)


_COUNT = {"type": "array", "minItems": LEAST_ROUNDS, "maxItems": MOST_ROUNDS}


def _factors(least: float) -> ValueValidator:
    def checked(value: Any) -> Factors:
        if not _fits(value, least):
            raise WrongValue(EXPECTED)
        return tuple(float(factor) for factor in value)

    above = {"exclusiveMinimum" if least else "minimum": 0}
    return ValueValidator(checked, _COUNT | {"items": {"type": "number", "maximum": MOST_FACTOR, **above}})


def _times(value: object) -> Factors:
    if isinstance(value, list) and LEAST_ROUNDS <= len(value) <= MOST_ROUNDS:
        return tuple(parse_latency(time) for time in value)
    raise WrongValue(f"a list of {LEAST_ROUNDS} to {MOST_ROUNDS} times, one for each round of a calibration")


Times = Annotated[Factors, ValueValidator(_times, _COUNT | {"items": quantity_schema(TIMES)})]
PositiveFactors = Annotated[Factors, _factors(math.ulp(0.0))]
_OrZero = Annotated[Factors, _factors(0.0)]
"""Factors that may be zero: in some round, a latency may measure as zero."""


class _Spread(Block):
    @classmethod
    def faults(cls, given: Given) -> Faults:
        lengths = {len(factors) for factors in given.values() if _fits(factors, 0.0)}
        if len(lengths) > 1:
            yield fault(found=_lists_of(lengths), expected="lists of one length")


class _LinkSpread(_Spread):
    bandwidth: PositiveFactors = ()
    latency: _OrZero = ()
    ack_share: PositiveFactors = ()


class _NodeSpread(_Spread):
    send_overhead: PositiveFactors = ()
    recv_overhead: PositiveFactors = ()
    profile: PositiveFactors = ()


def _read(block: type[Block]) -> Callable[[object], Spread]:
    return lambda value: Spread(tuple((key, factors) for key, factors in block.read(value) if factors))


LinkSpread = Annotated[Spread, ValueValidator(_read(_LinkSpread), schema_of(_LinkSpread))]
NodeSpread = Annotated[Spread, ValueValidator(_read(_NodeSpread), schema_of(_NodeSpread))]
SPREAD_KEYS = (*_LinkSpread.known.names, *_NodeSpread.known.names)


def several_lengths(spreads: Iterable[Spread], lists: Iterable[Factors]) -> str:
    """Return the lengths of a topology's spreads and *lists* in words if they differ, else "".

    Entry i of each belongs to calibration round i, so all must have the same length.
    """
    lengths = {spread.rounds for spread in spreads if spread.rounds} | {len(values) for values in lists if values}
    return f"{_lists_of(lengths)} as spread" if len(lengths) > 1 else ""


def _lists_of(lengths: set[int]) -> str:
    return f"lists of {' and '.join(map(str, sorted(lengths)))} factors"
