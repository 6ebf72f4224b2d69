"""The duration of work on a node's device, including slowdowns.

A slowdown is a factor drawn for every piece of work, or a persistent state. If the factor changes
during a piece of work, the piece ends when the integral of the speed 1/factor equals the work. The
result is exact, without time steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from simcluster.fault_plans.slowdown import Factors, stretched, worked
from simcluster.rng import numpy_stream
from simcluster.topology.model import stragglers
from simcluster.topology.model.duration import undisturbed_s

if TYPE_CHECKING:
    import numpy as np

    from simcluster.topology import Device
    from simcluster.transport import Cost
    from simcluster_backends.sim.loop.clock import Alarm, Clock

MOST_KNOWN = 16
"""The maximum number of durations in a device's cache: algorithms have few kinds of work."""

FORGOTTEN_CYCLES = 10_000
"""The number of on-off cycles after which an earlier state has an influence below exp(-40,000)."""


class DeviceModel:
    """The device of node *name*, with a single compute thread like that of a real node.

    The caller runs one piece of work at a time, in the order of the requests. It calls `start` when
    a piece begins and, if there is a *slowdown*, `stop` when the piece ends.
    """

    alarm: Alarm | None = None  # rings at the end of the piece of work in progress
    faults: Factors = ()  # (spell, factor) of faults that slow or stop the node
    _since_s = _left_s = 0.0  # the undisturbed seconds that were left of this piece at a time

    def __init__(self, device: Device, seed: int, name: str) -> None:
        self._device = device
        # A separate stream keeps the device's draws apart from the algorithm's.
        random = partial(numpy_stream, seed, "straggler", name)
        straggler = device.straggler
        self.slowdown = None if straggler is None else slowdown_of(straggler, random())
        self._known: dict[int, tuple[Cost, float]] = {}  # id of a cost -> (cost, seconds)

    def start(self, cost: Cost, now_s: float) -> float:
        """Return the virtual seconds that *cost* takes if it starts now."""
        known = self._known.get(id(cost))
        duration_s = known[1] if known is not None else self._learn(cost)
        if self.slowdown is not None:
            duration_s = self.slowdown.start(now_s, duration_s)
        self._since_s = now_s
        self._left_s = duration_s
        return stretched(self.faults, now_s, duration_s) if self.faults else duration_s

    def change(self, faults: Factors, clock: Clock) -> None:
        """Let *faults* be in effect from now on, also for the piece of work in progress."""
        alarm, now_s = self.alarm, clock.now_s
        if alarm is not None and not alarm.cancelled and faults != self.faults:
            self._left_s = max(0.0, self._left_s - worked(self.faults, self._since_s, now_s))
            self._since_s = now_s
            alarm.cancelled = True
            self.alarm = clock.alarm_at(now_s + stretched(faults, now_s, self._left_s), alarm.callback, alarm.argument)
        self.faults = faults

    def stop(self, now_s: float) -> None:
        """End the piece of work that started last, whether it is done or cancelled."""
        assert self.slowdown is not None, "without one, nothing depends on when a piece ends"
        self.slowdown.stop(now_s)

    def _learn(self, cost: Cost) -> float:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        duration_s = undisturbed_s(self._device, cost)
        # Keep a reference to the cost, so that no other cost can get the same id.
        self._known[id(cost)] = cost, duration_s
        return duration_s


class Slowdown:
    """A rule that turns undisturbed seconds of work into actual ones.

    Pieces of work do not overlap: start, stop, start, ...
    """

    def start(self, now_s: float, work_s: float) -> float:
        """Return the seconds that *work_s* of undisturbed work takes if it starts at *now_s*."""
        raise NotImplementedError

    def stop(self, now_s: float) -> None:
        """End the piece of work at *now_s*, which may be before its predicted end."""


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
            # numpy's pareto() is the Lomax distribution, which starts at 0.
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

    *steps_from(time)* yields (start, factor); the first step begins at *time*, and the last one of
    a finite sequence holds forever. *steps_from* is called with 0, and again after *forgotten_s*
    without work. By then the earlier state is irrelevant, so a year of sleep is skipped at once.
    """

    def __init__(self, steps_from: Callable[[float], Iterator[tuple[float, float]]], forgotten_s: float = math.inf):
        self._steps_from = steps_from
        self._forgotten_s = forgotten_s
        self._begin(0.0)

    def _begin(self, from_s: float) -> None:
        self._steps = self._steps_from(from_s)
        # The current step, and the later ones that a piece of work has needed so far.
        self._known = [next(self._steps)]

    def start(self, now_s: float, work_s: float) -> float:
        if now_s - self._known[-1][0] > self._forgotten_s:
            self._begin(now_s)
        while self._from_s(1) <= now_s:
            del self._known[0]
        at_s = now_s
        left_s = work_s
        index = 0
        while (change_s := self._from_s(index + 1)) < at_s + left_s * self._known[index][1]:
            left_s -= (change_s - at_s) / self._known[index][1]
            at_s = change_s
            index += 1
        return (at_s - now_s) + left_s * self._known[index][1]

    def _from_s(self, index: int) -> float:
        """Return the start of step *index*, counted from the current one; inf if there is none."""
        while len(self._known) <= index:
            step = next(self._steps, None)
            if step is None:
                return math.inf
            self._known.append(step)
        return self._known[index][0]


def in_turn(
    random: np.random.Generator, on: tuple[float, float], off: tuple[float, float], from_s: float
) -> Iterator[tuple[float, float]]:
    """Yield (start, value) of alternating phases *on* and *off*; the first starts at *from_s*.

    *on* and *off* are (mean seconds, value). The duration of a phase is exponentially distributed.
    The first phase is *on* with the stationary probability.
    """
    at_s = from_s
    now = on if random.random() < on[0] / (on[0] + off[0]) else off
    while True:
        yield at_s, now[1]
        at_s += float(random.exponential(now[0]))
        now = off if now is on else on


class WarmingSlowdown(Slowdown):
    """A factor f that approaches F exponentially while work runs, and 1 while the device is idle.

    From f0, after t seconds of work, f = F - (F - f0) exp(-t/h), with F = `factor` and
    h = `heating_s` of the Thermal. The work done by then, the integral of 1/f, is
    t/F + h/F ln(f/f0). For work w and x = F w/h, solving for t gives
    t = F w + h ln((f0 + (F - f0) e^-x)/F).
    """

    def __init__(self, thermal: stragglers.Thermal) -> None:
        self._thermal = thermal
        self._factor = 1.0
        self._since_s = 0.0

    def start(self, now_s: float, work_s: float) -> float:
        self._near(1.0, now_s, self._thermal.cooling_s)
        end = self._thermal.factor
        heating_s = self._thermal.heating_s
        # log1p and expm1 avoid cancellation between nearly equal numbers for short work.
        bend = math.log1p((end - self._factor) / end * math.expm1(-end * work_s / heating_s))
        return max(0.0, end * work_s + heating_s * bend)

    def stop(self, now_s: float) -> None:
        self._near(self._thermal.factor, now_s, self._thermal.heating_s)

    def _near(self, end: float, now_s: float, constant_s: float) -> None:
        self._factor = end + (self._factor - end) * math.exp(-(now_s - self._since_s) / constant_s)
        self._since_s = now_s
