"""Device slowdowns in virtual time: a factor drawn for every piece of work, or a persistent state.

If the factor changes during a piece of work, the piece ends when the integral of the speed 1/factor equals the work:
exact, with no time step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from simcluster.topology.model.stragglers import (
    Constant,
    Exponential,
    Lognormal,
    Markov,
    Pareto,
    ShiftedExponential,
    Straggler,
    Thermal,
    Trace,
    TwoPoint,
)

if TYPE_CHECKING:
    import numpy as np


FORGOTTEN_CYCLES = 10_000
"""After this many slow and fast periods, less than exp(-40,000) remains of a Markov device's earlier state."""


class Slowdown(Protocol):
    """Turn undisturbed seconds of work into actual ones. Pieces of work do not overlap: start, stop, start, ..."""

    def start(self, now_s: float, work_s: float) -> float:
        """Return how long *work_s* takes if it starts at *now_s*."""

    def stop(self, now_s: float) -> None:
        """End the piece at *now_s*, maybe early."""


def slowdown_of(straggler: Straggler | None, random: np.random.Generator) -> Slowdown:
    """Return the slowdown that *straggler* describes; all its draws come from *random*."""
    match straggler:
        case None:
            return Drawn(lambda: 1.0)
        case Markov():
            forgotten_s = FORGOTTEN_CYCLES * (straggler.slow_s + straggler.fast_s)
            return Stepped(lambda from_s: _markov_steps(straggler, random, from_s), forgotten_s)
        case Trace(factors):
            return Stepped(lambda _: iter(factors))
        case Thermal():
            return Warming(straggler)
    return Drawn(lambda: draw_factor(straggler, random))


def draw_factor(straggler: Straggler, random: np.random.Generator) -> float:
    """Draw a factor for one piece of work: see `simcluster.topology.model.stragglers`."""
    match straggler:
        case Constant(factor):
            return factor
        case Lognormal(sigma):
            return math.exp(sigma * random.standard_normal() - sigma**2 / 2)
        case Exponential(mean):
            return float(random.exponential(mean))
        case ShiftedExponential(mean, shift):
            return shift + float(random.exponential(mean))
        case Pareto(shape, minimum):
            # numpy's is the Lomax distribution, which starts at 0.
            return minimum * (1.0 + float(random.pareto(shape)))
        case TwoPoint(factor, probability):
            return factor if random.random() < probability else 1.0
    raise AssertionError(f"{straggler} is not drawn")


class Drawn:
    """A factor drawn per piece of work."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw

    def start(self, now_s: float, work_s: float) -> float:
        # Zero work draws nothing: a draw would shift all later ones.
        return work_s * self._draw() if work_s else 0.0

    def stop(self, now_s: float) -> None:
        """Keep no state."""


class Stepped:
    """A factor that changes at given times, whether or not the device works.

    *steps_from(time)* yields (start, factor), the first from *time* on; the last of a finite sequence holds forever. It
    is called at 0, and again after *forgotten_s* without a query: the earlier state is irrelevant by then, so a year of
    sleep is not stepped through change by change.
    """

    def __init__(self, steps_from: Callable[[float], Iterator[tuple[float, float]]], forgotten_s: float = math.inf):
        self._steps_from, self._forgotten_s = steps_from, forgotten_s
        self._begin(0.0)

    def _begin(self, from_s: float) -> None:
        self._steps = self._steps_from(from_s)
        # The current step, and later ones that a piece of work has looked ahead at.
        self._known = [next(self._steps)]

    def start(self, now_s: float, work_s: float) -> float:
        if now_s - self._known[-1][0] > self._forgotten_s:
            self._begin(now_s)
        while (change_s := self._from_s(1)) is not None and change_s <= now_s:
            del self._known[0]
        at_s, left_s, index = now_s, work_s, 0
        while (change_s := self._from_s(index + 1)) is not None:
            factor = self._known[index][1]
            if at_s + left_s * factor <= change_s:
                break
            left_s -= (change_s - at_s) / factor
            at_s, index = change_s, index + 1
        return (at_s - now_s) + left_s * self._known[index][1]

    def stop(self, now_s: float) -> None:
        """Do nothing: the steps do not depend on work."""

    def _from_s(self, index: int) -> float | None:
        """Return when the step *index* after the current one begins; None if there is none."""
        while len(self._known) <= index:
            step = next(self._steps, None)
            if step is None:
                return None
            self._known.append(step)
        return self._known[index][0]


def _markov_steps(markov: Markov, random: np.random.Generator, from_s: float) -> Iterator[tuple[float, float]]:
    """Yield slow and fast periods in turn, exponentially long; the first is slow with the stationary probability."""
    slow, at_s = bool(random.random() < markov.slow_share), from_s
    while True:
        yield at_s, markov.factor if slow else 1.0
        at_s += float(random.exponential(markov.slow_s if slow else markov.fast_s))
        slow = not slow


class Warming:
    """The factor f approaches *factor* while work runs and 1 while the device is idle, exponentially.

    From f0, after t seconds of work, f = F - (F - f0) exp(-t/h), with F = *factor* and h = *heating_s*. The work done
    by then, the integral of 1/f, is t/F + h/F ln(f/f0). Solved for t, for work w and x = F w/h, that is
    t = F w + h ln((f0 + (F - f0) e^-x)/F).
    """

    def __init__(self, thermal: Thermal) -> None:
        self._thermal = thermal
        self._factor = 1.0
        self._since_s = 0.0

    def start(self, now_s: float, work_s: float) -> float:
        self._near(1.0, now_s, self._thermal.cooling_s)
        end, heating_s = self._thermal.factor, self._thermal.heating_s
        # log1p and expm1 avoid cancellation between nearly equal numbers for short work.
        bend = math.log1p((end - self._factor) / end * math.expm1(-end * work_s / heating_s))
        return max(0.0, end * work_s + heating_s * bend)

    def stop(self, now_s: float) -> None:
        self._near(self._thermal.factor, now_s, self._thermal.heating_s)

    def _near(self, end: float, now_s: float, constant_s: float) -> None:
        self._factor = end + (self._factor - end) * math.exp(-(now_s - self._since_s) / constant_s)
        self._since_s = now_s
