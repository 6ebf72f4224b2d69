"""The ways in which a device is slower than its numbers: one frozen class per kind, as in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from simcluster.documents.models import WrongValue
from simcluster.documents.values import Positive, number, positive_time, quantity
from simcluster.units import TIMES, format_latency

SHORTEST_S = 10e-6
"""Every change of a Markov straggler is simulated: shorter sojourns would take forever and change nothing."""

_A_SOJOURN = "a time with its unit, at least 10 us"


def _sojourn(text: object) -> float:
    time_s = positive_time(text)
    if time_s < SHORTEST_S:
        raise WrongValue(_A_SOJOURN)
    return time_s


Sojourn = quantity(_sojourn, TIMES, _A_SOJOURN)
TimeConstant = quantity(positive_time, TIMES, "a time with its unit, above zero")


class Straggler:
    """The factor by which a piece of work takes longer than the device's numbers say. `str` describes it in words."""

    kind: ClassVar[str]

    @property
    def mean_factor(self) -> float:
        """The expected factor of a short piece of work at a random moment."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Straggler):
    """Always *factor*."""

    kind = "constant"
    factor: Annotated[float, Positive]

    @property
    def mean_factor(self) -> float:
        return self.factor

    def __str__(self) -> str:
        return f"{self.factor:g} times slower"


@dataclass(frozen=True)
class Lognormal(Straggler):
    """exp of a normal with standard deviation *sigma* and mean -sigma^2/2, so that the factor's mean is 1."""

    kind = "lognormal"
    sigma: Annotated[float, number(lambda x: 0 <= x <= 10, "a number from 0 to 10", minimum=0, maximum=10)]

    @property
    def mean_factor(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"lognormal straggler (sigma {self.sigma:g})"


@dataclass(frozen=True)
class Exponential(Straggler):
    """Exponential with mean *mean*."""

    kind = "exponential"
    mean: Annotated[float, Positive] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.mean

    def __str__(self) -> str:
        return f"exponential straggler (mean {self.mean:g})"


@dataclass(frozen=True)
class ShiftedExponential(Straggler):
    """*shift* plus an exponential with mean *mean*: never faster than *shift*."""

    kind = "shifted-exponential"
    mean: Annotated[float, Positive]
    shift: Annotated[float, number(lambda x: x >= 0, "a number, 0 or above", minimum=0)] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.shift + self.mean

    def __str__(self) -> str:
        return f"{self.shift:g} plus an exponential straggler (mean {self.mean:g})"


@dataclass(frozen=True)
class Pareto(Straggler):
    """At least *minimum*; above x with probability (minimum/x)^shape. A *shape* of 1 or less would have no mean."""

    kind = "pareto"
    shape: Annotated[float, number(lambda x: x > 1, "a number above 1: else the mean is infinite", exclusiveMinimum=1)]
    minimum: Annotated[float, Positive] = 1.0

    @property
    def mean_factor(self) -> float:
        return self.minimum * self.shape / (self.shape - 1)

    def __str__(self) -> str:
        return f"Pareto straggler (at least {self.minimum:g}, shape {self.shape:g})"


@dataclass(frozen=True)
class TwoPoint(Straggler):
    """*factor* with *probability*, else 1."""

    kind = "two-point"
    factor: Annotated[float, Positive]
    probability: Annotated[float, number(lambda x: 0 <= x <= 1, "a number from 0 to 1", minimum=0, maximum=1)]

    @property
    def mean_factor(self) -> float:
        return self.probability * self.factor + (1 - self.probability)

    def __str__(self) -> str:
        return f"{self.factor:g} times slower in {self.probability:.4g} of cases"


@dataclass(frozen=True)
class Markov(Straggler):
    """On and off: slowed by *factor* for *slow_s* on average, then at full speed for *fast_s*, and so on.

    Both phases last exponential times of the cluster's clock, whether the device works or not, and the run starts at a
    random moment. A change during a piece of work affects the rest of it.
    """

    kind = "markov"
    factor: Annotated[float, Positive]
    slow_s: Annotated[float, Sojourn, Field(alias="slow")]
    fast_s: Annotated[float, Sojourn, Field(alias="fast")]

    @property
    def mean_factor(self) -> float:
        slow_share = self.slow_s / (self.slow_s + self.fast_s)
        return slow_share * self.factor + (1 - slow_share)

    def __str__(self) -> str:
        slow, fast = format_latency(self.slow_s), format_latency(self.fast_s)
        return f"{self.factor:g} times slower for {slow}, then at full speed for {fast}, on average"


@dataclass(frozen=True)
class Thermal(Straggler):
    """Slowdown under load, up to *factor*, and recovery while idle, as a warm body cools (Newton's law).

    The factor approaches its limit exponentially: from 1 towards *factor* with the time constant *heating_s*, back
    towards 1 with *cooling_s*. The device starts cold.
    """

    kind = "thermal"
    factor: Annotated[float, Positive]
    heating_s: Annotated[float, TimeConstant, Field(alias="heating")]
    cooling_s: Annotated[float, TimeConstant, Field(alias="cooling")]

    @property
    def mean_factor(self) -> float:
        """The limit for a device that never rests."""
        return self.factor

    def __str__(self) -> str:
        return (
            f"{self.factor:g} times slower when warm "
            f"(warms up in {format_latency(self.heating_s)}, cools in {format_latency(self.cooling_s)})"
        )


@dataclass(frozen=True)
class Trace(Straggler):
    """Factors over time: each of *factors*, (start in seconds, factor), holds until the next; the last one forever.

    A change during a piece of work affects the rest of it.
    """

    kind = "trace"
    factors: tuple[tuple[float, float], ...]

    @property
    def mean_factor(self) -> float:
        """The mean over the time from the first change to the last; the factor itself if it never changes."""
        end_s = self.factors[-1][0]
        if not end_s:
            return self.factors[-1][1]
        held = zip(self.factors, self.factors[1:], strict=False)
        return sum(factor * (until_s - from_s) for (from_s, factor), (until_s, _) in held) / end_s

    def __str__(self) -> str:
        lowest, highest = (find(factor for _, factor in self.factors) for find in (min, max))
        return f"{lowest:g} to {highest:g} times slower, by a trace of {len(self.factors)} steps"
