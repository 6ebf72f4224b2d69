"""The duration of work on a node's device: undisturbed, then its slowdown.

A slowdown is a factor drawn for every piece of work, or a persistent state. If the factor changes during a piece of
work, the piece ends when the integral of the speed 1/factor equals the work: exact, with no time step.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from simcluster.fault_plans.kinds import Factors, stretched
from simcluster.rng import numpy_stream
from simcluster.topology.model import stragglers
from simcluster.topology.model.duration import undisturbed_s

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Device
    from simcluster.transport import Cost

MOST_KNOWN = 16
"""Costs with durations that a device remembers: an algorithm has a few kinds of work."""

FORGOTTEN_CYCLES = 10_000
"""After this many times on and off, less than exp(-40,000) remains of an earlier state."""


class DeviceLock(asyncio.Lock):
    """The lock of a node's device, which nearly always is free."""

    _locked: bool  # asyncio.Lock's

    def take(self) -> bool:
        """Acquire the lock if nothing holds it or waits for it; return whether it did."""
        if self._locked or self._waiters:
            return False
        self._locked = True
        return True

    def give(self) -> None:
        """Release the lock, which is held."""
        if self._waiters:
            self.release()
        else:
            self._locked = False


class DeviceModel:
    """The device of node *name*. Call `start` when a piece of work begins and `stop` when it ends.

    The caller must run one piece at a time, in the order requested, like the single compute thread of a real node.
    """

    def __init__(self, device: Device, seed: int, name: str) -> None:
        self._device = device
        # A separate stream: the algorithm's draws and the device's never mix.
        random, straggler = partial(numpy_stream, seed, "straggler", name), device.straggler
        self._slowdown = None if straggler is None else slowdown_of(straggler, random())
        self._known: dict[int, tuple[Cost, float]] = {}  # by id: what work costs again and again, and its seconds
        self.faults: Factors = ()  # when the node is slowed further or stopped

    def start(self, cost: Cost, now_s: float) -> float:
        """Return the virtual seconds that *cost* takes if it starts now."""
        known = self._known.get(id(cost))
        duration_s = known[1] if known is not None else self._learn(cost)
        if self._slowdown is not None:
            duration_s = self._slowdown.start(now_s, duration_s)
        return stretched(self.faults, now_s, duration_s) if self.faults else duration_s

    def stop(self, now_s: float) -> None:
        """End the piece that started last, whether done or cancelled."""
        if self._slowdown is not None:
            self._slowdown.stop(now_s)

    def _learn(self, cost: Cost) -> float:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        duration_s = undisturbed_s(self._device, cost)
        self._known[id(cost)] = cost, duration_s  # with the cost: no other has its id meanwhile
        return duration_s


class Slowdown:
    """Turns undisturbed seconds of work into actual ones. Pieces of work do not overlap: start, stop, start, ..."""

    def start(self, now_s: float, work_s: float) -> float:
        """Return how long *work_s* takes if it starts at *now_s*."""
        raise NotImplementedError

    def stop(self, now_s: float) -> None:
        """End the piece at *now_s*, maybe early."""


def slowdown_of(straggler: stragglers.Straggler, random: np.random.Generator) -> Slowdown:
    """Return the slowdown that *straggler* describes; all its draws come from *random*."""
    match straggler:
        case stragglers.Markov(factor=factor, slow_s=slow_s, fast_s=fast_s):
            steps_from = partial(in_turn, random, (slow_s, factor), (fast_s, 1.0))
            return SteppedSlowdown(steps_from, FORGOTTEN_CYCLES * (slow_s + fast_s))
        case stragglers.Trace(factors):
            return SteppedSlowdown(lambda _: iter(factors))
        case stragglers.Thermal():
            return WarmingSlowdown(straggler)
    return DrawnSlowdown(partial(draw_factor, straggler, random))


def draw_factor(straggler: stragglers.Straggler, random: np.random.Generator) -> float:
    """Draw a factor for one piece of work: see `simcluster.topology.model.stragglers`."""
    match straggler:
        case stragglers.Constant(factor):
            return factor
        case stragglers.Lognormal(sigma):
            return math.exp(sigma * random.standard_normal() - sigma**2 / 2)
        case stragglers.Exponential(mean):
            return float(random.exponential(mean))
        case stragglers.ShiftedExponential(mean, shift):
            return shift + float(random.exponential(mean))
        case stragglers.Pareto(shape, minimum):
            # numpy's is the Lomax distribution, which starts at 0.
            return minimum * (1.0 + float(random.pareto(shape)))
        case stragglers.TwoPoint(factor, probability):
            return factor if random.random() < probability else 1.0
    raise AssertionError(f"{straggler} is not drawn")


class DrawnSlowdown(Slowdown):
    """A factor drawn per piece of work."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw

    def start(self, now_s: float, work_s: float) -> float:
        # Zero work draws nothing: a draw would shift all later ones.
        return work_s * self._draw() if work_s else 0.0


class SteppedSlowdown(Slowdown):
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
        while self._from_s(1) <= now_s:
            del self._known[0]
        at_s, left_s, index = now_s, work_s, 0
        while (change_s := self._from_s(index + 1)) < at_s + left_s * self._known[index][1]:
            left_s -= (change_s - at_s) / self._known[index][1]
            at_s, index = change_s, index + 1
        return (at_s - now_s) + left_s * self._known[index][1]

    def _from_s(self, index: int) -> float:
        """Return when the step *index* after the current one begins; inf if there is none."""
        while len(self._known) <= index:
            step = next(self._steps, None)
            if step is None:
                return math.inf
            self._known.append(step)
        return self._known[index][0]


def in_turn(
    random: np.random.Generator, on: tuple[float, float], off: tuple[float, float], from_s: float
) -> Iterator[tuple[float, float]]:
    """Yield (start, value) of *on* and *off* in turn, each (mean seconds, value), for exponential times.

    The first is on with the stationary probability.
    """
    at_s, now = from_s, on if random.random() < on[0] / (on[0] + off[0]) else off
    while True:
        yield at_s, now[1]
        at_s += float(random.exponential(now[0]))
        now = off if now is on else on


class WarmingSlowdown(Slowdown):
    """The factor f approaches *factor* while work runs and 1 while the device is idle, exponentially.

    From f0, after t seconds of work, f = F - (F - f0) exp(-t/h), with F = *factor* and h = *heating_s*. The work done
    by then, the integral of 1/f, is t/F + h/F ln(f/f0). Solved for t, for work w and x = F w/h, that is
    t = F w + h ln((f0 + (F - f0) e^-x)/F).
    """

    def __init__(self, thermal: stragglers.Thermal) -> None:
        self._thermal, self._factor, self._since_s = thermal, 1.0, 0.0

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
