"""The kinds of stragglers: ways in which a device is slower than its numbers. All are frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from simcluster.documents.models import WrongValue
from simcluster.documents.values import Positive, number, positive_time, quantity
from simcluster.units import TIMES, format_latency

SHORTEST_S = 10e-6
"""The shortest mean sojourn of a Markov straggler.

Every change of state is simulated: shorter sojourns would take forever and change no result.
"""

_A_SOJOURN = "a time with its unit, at least 10 us"


def _sojourn(text: object) -> float:
    time_s = positive_time(text)
    if time_s < SHORTEST_S:
        raise WrongValue(_A_SOJOURN)
    return time_s


Sojourn = quantity(_sojourn, TIMES, _A_SOJOURN)
TimeConstant = quantity(positive_time, TIMES, "a time with its unit, above zero")


class Straggler:
    """A factor by which a piece of work takes longer than the device's numbers predict.

    `str` returns a description of the factor.
    """

    kind: ClassVar[str]
    words: ClassVar[str]
    """The format of the description, with placeholders for the fields; `slow_s` is {slow} there."""

    @property
    def mean_factor(self) -> float:
        """The expected factor of a short piece of work at a random moment."""
        raise NotImplementedError

    def __str__(self) -> str:
        times = {name[:-2]: format_latency(value) for name, value in vars(self).items() if name.endswith("_s")}
        return self.words.format(**vars(self), **times)


@dataclass(frozen=True)
class Constant(Straggler):
    """A constant slowdown by *factor*."""

    kind = "constant"
    words = "{factor:g} times slower"
    factor: Annotated[float, Positive]

    @property
    def mean_factor(self) -> float:
        return self.factor


@dataclass(frozen=True)
class Lognormal(Straggler):
    """A lognormal factor with mean 1: its logarithm has the standard deviation *sigma*."""

    kind = "lognormal"
    words = "lognormal straggler (sigma {sigma:g})"
    sigma: Annotated[float, number(lambda x: 0 <= x <= 10, "a number from 0 to 10", minimum=0, maximum=10)]

    @property
    def mean_factor(self) -> float:
        return 1.0


@dataclass(frozen=True)
class Exponential(Straggler):
    """An exponentially distributed factor with the mean *mean*."""

    kind = "exponential"
    words = "exponential straggler (mean {mean:g})"
    mean: Annotated[float, Positive] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.mean


@dataclass(frozen=True)
class ShiftedExponential(Straggler):
    """A factor of *shift* plus an exponentially distributed number with the mean *mean*."""

    kind = "shifted-exponential"
    words = "{shift:g} plus an exponential straggler (mean {mean:g})"
    mean: Annotated[float, Positive]
    shift: Annotated[float, number(lambda x: x >= 0, "a number, 0 or above", minimum=0)] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.shift + self.mean


@dataclass(frozen=True)
class Pareto(Straggler):
    """A Pareto-distributed factor: above x with probability (*minimum* / x)^*shape*.

    A *shape* of 1 or less would have no mean.
    """

    kind = "pareto"
    words = "Pareto straggler (at least {minimum:g}, shape {shape:g})"
    shape: Annotated[float, number(lambda x: x > 1, "a number above 1: else the mean is infinite", exclusiveMinimum=1)]
    minimum: Annotated[float, Positive] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.minimum * self.shape / (self.shape - 1)


@dataclass(frozen=True)
class TwoPoint(Straggler):
    """A slowdown by *factor* with *probability*, else none."""

    kind = "two-point"
    words = "{factor:g} times slower in {probability:.4g} of cases"
    factor: Annotated[float, Positive]
    probability: Annotated[float, number(lambda x: 0 <= x <= 1, "a number from 0 to 1", minimum=0, maximum=1)]

    @property
    def mean_factor(self) -> float:
        return self.probability * self.factor + (1 - self.probability)


@dataclass(frozen=True)
class Markov(Straggler):
    """A device that alternates between slow phases, slowed by *factor*, and phases at full speed.

    Phases last *slow_s* and *fast_s* on average, exponentially distributed, on the cluster's clock,
    whether the device works or not. The run starts at a random moment of this process. A change
    during a piece of work affects the rest of the work.
    """

    kind = "markov"
    words = "{factor:g} times slower for {slow}, then at full speed for {fast}, on average"
    factor: Annotated[float, Positive]
    slow_s: Annotated[float, Sojourn, Field(alias="slow")]
    fast_s: Annotated[float, Sojourn, Field(alias="fast")]

    @property
    def mean_factor(self) -> float:
        slow_share = self.slow_s / (self.slow_s + self.fast_s)
        return slow_share * self.factor + (1 - slow_share)


@dataclass(frozen=True)
class Thermal(Straggler):
    """A device that slows down under load, up to *factor*, and recovers while idle (Newton's law).

    The factor approaches its limit exponentially: *factor* with the time constant *heating_s*, and
    1 with the time constant *cooling_s*. The device starts cold.
    """

    kind = "thermal"
    words = "{factor:g} times slower when warm (warms up in {heating}, cools in {cooling})"
    factor: Annotated[float, Positive]
    heating_s: Annotated[float, TimeConstant, Field(alias="heating")]
    cooling_s: Annotated[float, TimeConstant, Field(alias="cooling")]

    @property
    def mean_factor(self) -> float:
        """The factor that a device approaches if it never rests."""
        return self.factor


@dataclass(frozen=True)
class Trace(Straggler):
    """Factors over time: each of *factors* is (start in seconds, factor).

    A factor holds until the next begins, the last one forever. A change during a piece of work
    affects the rest of the work.
    """

    kind = "trace"
    factors: tuple[tuple[float, float], ...]

    @property
    def mean_factor(self) -> float:
        """The mean from the start to the last change; the factor itself if it never changes."""
        end_s = self.factors[-1][0]
        if not end_s:
            return self.factors[-1][1]
        held = zip(self.factors, self.factors[1:], strict=False)
        return sum(factor * (until_s - from_s) for (from_s, factor), (until_s, _) in held) / end_s

    def __str__(self) -> str:
        lowest, highest = (find(factor for _, factor in self.factors) for find in (min, max))
        return f"{lowest:g} to {highest:g} times slower, by a trace of {len(self.factors)} steps"
