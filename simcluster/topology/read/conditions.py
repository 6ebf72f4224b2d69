"""Read the conditions of a link in a topology document: jitter, a bandwidth trace, background traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, fault, refuse
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
from simcluster.topology.model.conditions import JITTER_KINDS, Background, Jitter, JitterKind, RateTrace
from simcluster.topology.read.traces import TraceBlock, one_of_file_and, steps
from simcluster.units import BANDWIDTHS, TIMES, parse_bandwidth_or_zero

_STEPS = "a mapping of times to factors or bandwidths: {0 s: 1, 10 s: 0.2, 12 s: 30 Mbps}"
_MEAN = "a time with its unit: the mean delay added to the latency"
_SIGMA = "a number above 0, at most 10"
_share = number(lambda x: x >= 0, "a number, 0 or above, or a bandwidth with its unit", minimum=0)


def _step(value: object) -> float | str:
    if isinstance(value, str):
        _rate(value)
        return value
    return float(_share(value))


_rate = quantity(parse_bandwidth_or_zero, BANDWIDTHS)
_RATES = steps(_step, _STEPS, {"anyOf": [{"type": "number", "minimum": 0}, quantity_schema(BANDWIDTHS)]})


class JitterBlock(Block):
    """The jitter of a link."""

    rules: ClassVar[dict[str, Any]] = {
        "if": {"properties": {"kind": {"const": "lognormal"}}, "required": ["kind"]},
        "then": {"required": ["sigma"]},
        "else": {"properties": {"sigma": {"type": "null"}}},
    }
    kind: Annotated[JitterKind, one_of(JITTER_KINDS)] = "exponential"
    mean_s: Annotated[float, quantity(positive_time, TIMES, _MEAN)] = Field(alias="mean")
    sigma: Annotated[float, number(lambda x: 0 < x <= 10, _SIGMA, exclusiveMinimum=0, maximum=10)] = 0.0

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        kind = given.get("kind", "exponential")
        if "sigma" in given and kind in JITTER_KINDS and kind != "lognormal":
            yield fault("sigma", found=f"it with kind {kind}", expected="none", at_key=True)
        elif "sigma" not in given and kind == "lognormal":
            yield fault("sigma", found="nothing with kind lognormal", expected=_SIGMA)


class BackgroundBlock(Block):
    """Background traffic: its rate, and its mean times on and off."""

    rules: ClassVar[dict[str, Any]] = {"dependencies": {"on": ["off"], "off": ["on"]}}
    rate_Bps: Bandwidth = Field(alias="rate")
    on_s: Time = Field(math.inf, alias="on")
    off_s: Time = Field(0.0, alias="off")

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        for key, other in (("on", "off"), ("off", "on")):
            if other in given and key not in given:
                yield fault(key, expected=f"a time with its unit, as there is {other}")

    @property
    def background(self) -> Background:
        return Background(self.rate_Bps, self.on_s, self.off_s)


class RateTraceBlock(TraceBlock):
    """A bandwidth over time: absolute, or as a factor of the link's own."""

    rows, either = "steps", f"a file (CSV, time_s and factor or bandwidth) or steps, {_STEPS}"
    rules: ClassVar[dict[str, Any]] = one_of_file_and("steps")
    steps: Annotated[tuple[tuple[float, Any], ...], _RATES] = ()
    period_s: Time = Field(math.inf, alias="period")

    def trace(self, bandwidth_Bps: float) -> RateTrace:
        """Return the bandwidths over time of a link with *bandwidth_Bps*."""
        steps = self.steps
        rates = ((s, x * bandwidth_Bps if isinstance(x, float) else parse_bandwidth_or_zero(x)) for s, x in steps)
        return RateTrace(tuple(rates), self.period_s)


def _jitter(value: object) -> Jitter:
    """Read a time alone as the mean of exponential jitter."""
    return Jitter(**dict(JitterBlock.read(value))) if isinstance(value, Mapping) else Jitter(time(value))


def _background(value: object) -> Background:
    """Read a bandwidth alone as constant traffic."""
    return BackgroundBlock.read(value).background if isinstance(value, Mapping) else Background(bandwidth(value))


def _rate_trace(value: object) -> RateTraceBlock:
    block = RateTraceBlock.read(value)
    if block.steps[-1][0] >= block.period_s:
        refuse([fault("period", expected=f"more than {block.steps[-1][0]:g} s, the time of the last step")])
    return block


def _either(alone: Schema, made: type[Block]) -> Schema:
    return {"anyOf": [alone, schema_of(made)]}


JitterOf = Annotated[Jitter, ValueValidator(_jitter, _either(quantity_schema(TIMES), JitterBlock))]
BackgroundOf = Annotated[Background, ValueValidator(_background, _either(quantity_schema(BANDWIDTHS), BackgroundBlock))]
RateTraceOf = Annotated[RateTraceBlock, ValueValidator(_rate_trace, schema_of(RateTraceBlock))]
