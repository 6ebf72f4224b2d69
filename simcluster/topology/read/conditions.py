"""Read the conditions of a link in a topology document: jitter, a bandwidth trace, background traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from simcluster.documents.models import Block, Faults, Given, fault, refuse
from simcluster.documents.values import (
    Bandwidth,
    Schema,
    Time,
    ValueValidator,
    bandwidth,
    number,
    one_of,
    positive_time,
    quantity,
    quantity_schema,
    schema_of,
    time,
)
from simcluster.topology.model.conditions import (
    JITTER_KINDS,
    Background,
    Jitter,
    JitterKind,
    LatencyTrace,
    RateTrace,
)
from simcluster.topology.read.traces import LinkTraceBlock, one_of_file_and, steps
from simcluster.units import BANDWIDTHS, TIMES, Units, parse_bandwidth_or_zero, parse_latency

_STEPS = "a mapping of times to factors or bandwidths: {0 s: 1, 10 s: 0.2, 12 s: 30 Mbps}"
_LATENCIES = "a mapping of times to factors or latencies: {0 s: 1, 10 s: 3, 12 s: 80 ms}"
_MEAN = "a time with its unit: the mean delay added to the latency"
_SIGMA = "a number above 0, at most 10"
_share = number(lambda x: x >= 0, "a number, 0 or above, or a value with its unit", minimum=0)


def _either_of(parse: Callable[[object], float], units: Units, expected: str) -> ValueValidator:
    """Return a validator of steps, whose values are factors or quantities with one of *units*."""
    check = quantity(parse, units)

    def step(value: object) -> float | str:
        if isinstance(value, str):
            check(value)
            return value
        return float(_share(value))

    return steps(step, expected, {"anyOf": [{"type": "number", "minimum": 0}, quantity_schema(units)]})


class JitterBlock(Block):
    """The jitter of a link."""

    rules: ClassVar[Schema] = {
        "if": {"properties": {"kind": {"const": "lognormal"}}, "required": ["kind"]},
        "then": {"required": ["sigma"]},
        "else": {"properties": {"sigma": {"type": "null"}}},
    }
    kind: Annotated[JitterKind, one_of(JITTER_KINDS)] = "exponential"
    mean_s: Annotated[float, quantity(positive_time, TIMES, _MEAN)] = Field(alias="mean")
    sigma: Annotated[float, number(lambda x: 0 < x <= 10, _SIGMA, exclusiveMinimum=0, maximum=10)] = 0.0

    @classmethod
    def faults(cls, given: Given) -> Faults:
        kind = given.get("kind", "exponential")
        if "sigma" in given and kind in JITTER_KINDS and kind != "lognormal":
            yield fault("sigma", found=f"it with kind {kind}", expected="none", at_key=True)
        elif "sigma" not in given and kind == "lognormal":
            yield fault("sigma", found="nothing with kind lognormal", expected=_SIGMA)


class BackgroundBlock(Block):
    """Background traffic: its rate, and its mean times on and off."""

    rules: ClassVar[Schema] = {"dependencies": {"on": ["off"], "off": ["on"]}}
    rate_Bps: Bandwidth = Field(alias="rate")
    on_s: Time = Field(math.inf, alias="on")
    off_s: Time = Field(0.0, alias="off")

    @classmethod
    def faults(cls, given: Given) -> Faults:
        for key, other in (("on", "off"), ("off", "on")):
            if other in given and key not in given:
                yield fault(key, expected=f"a time with its unit, as there is {other}")

    @property
    def background(self) -> Background:
        return Background(self.rate_Bps, self.on_s, self.off_s)


class RateTraceBlock(LinkTraceBlock):
    """A bandwidth over time: absolute, or as factors of the link's own bandwidth."""

    either = f"a file (with a time and a factor or bandwidth) or steps, {_STEPS}"
    rules: ClassVar[Schema] = one_of_file_and("steps")
    steps: Annotated[Any, _either_of(parse_bandwidth_or_zero, BANDWIDTHS, _STEPS)] = ()

    def trace(self, bandwidth_Bps: float) -> RateTrace:
        """Return the bandwidth over time of a link with the nominal *bandwidth_Bps*."""
        return RateTrace(_absolute(self.steps, bandwidth_Bps, parse_bandwidth_or_zero), self.period_s, self.source)


class LatencyTraceBlock(LinkTraceBlock):
    """A latency over time: absolute, or as factors of the link's own latency."""

    either = f"a file (with a time and a factor or latency) or steps, {_LATENCIES}"
    rules: ClassVar[Schema] = one_of_file_and("steps")
    steps: Annotated[Any, _either_of(parse_latency, TIMES, _LATENCIES)] = ()

    def trace(self, latency_s: float) -> LatencyTrace:
        """Return the latency over time of a link with the nominal *latency_s*."""
        return LatencyTrace(_absolute(self.steps, latency_s, parse_latency), self.period_s, self.source, latency_s)


def _absolute(
    steps: Iterable[tuple[float, float | str]], nominal: float, parse: Callable[[object], float]
) -> tuple[tuple[float, float], ...]:
    return tuple((at_s, step * nominal if isinstance(step, float) else parse(step)) for at_s, step in steps)


def _jitter(value: object) -> Jitter:
    """Return jitter from its mapping, or from a time: the mean of exponential jitter."""
    return Jitter(**dict(JitterBlock.read(value))) if isinstance(value, Mapping) else Jitter(time(value))


def _background(value: object) -> Background:
    """Return background traffic from its mapping, or from a bandwidth: its constant rate."""
    return BackgroundBlock.read(value).background if isinstance(value, Mapping) else Background(bandwidth(value))


def _trace(made: type[LinkTraceBlock]) -> ValueValidator:
    def read(value: object) -> Any:
        block: Any = made.read(value)
        if block.steps[-1][0] >= block.period_s:
            refuse([fault("period", expected=f"more than {block.steps[-1][0]:g} s, the time of the last step")])
        return block

    return ValueValidator(read, schema_of(made))


def _either(alone: Schema, made: type[Block]) -> Schema:
    return {"anyOf": [alone, schema_of(made)]}


JitterOf = Annotated[Jitter, ValueValidator(_jitter, _either(quantity_schema(TIMES), JitterBlock))]
BackgroundOf = Annotated[Background, ValueValidator(_background, _either(quantity_schema(BANDWIDTHS), BackgroundBlock))]
RateTraceOf = Annotated[RateTraceBlock, _trace(RateTraceBlock)]
LatencyTraceOf = Annotated[LatencyTraceBlock, _trace(LatencyTraceBlock)]
