"""Draws a fault plan for a case, from the times of its undisturbed run.

Kinds and moments are random, and some moments are known to be critical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from simcluster.units import write_latency
from tools.swarm.case import Case
from tools.swarm.draw.case import FEATURES, OMITTED
from tools.swarm.draw.dice import Dice

OF_NODES: Final = ("crash", "restart", "join", "leave", "hang", "slow")
OF_LINKS: Final = ("cut", "flap", "latency", "bandwidth", "loss")
OF_GROUPS: Final = ("partition", "reset")
LOSING: Final = ("crash", "restart", "leave", "hang")
KINDS: Final = (*OF_NODES, *OF_LINKS, *OF_GROUPS)
DEAD_S: Final = 5.0
"""The default of the backend's *dead_s*."""

MOMENTS: Final = ("anywhere", "zero", "together", "boundary", "soon after", "last step", "after the end")
OFTEN: Final = (8, 1, 1, 2, 3, 2, 1)
OFTEN_BY_TIME: Final = (6, 1, 1, 2, 3, 5, 0)
"""The weights of MOMENTS for a case with a limit on its time.

In such a case nothing happens after the end, and many faults come just before it.
"""


@dataclass(frozen=True)
class Clock:
    """The times of an undisturbed run: its end, and the ends of its steps."""

    end_s: float
    steps_s: Sequence[float]


def kinds_of(case: Case) -> list[str]:
    """Return the kinds of faults to draw for *case*. They do not depend on its undisturbed run."""
    dice = Dice(case.seed, "faults")
    known = KINDS if case.document["topology"]["links"] else OF_NODES
    if len(case.workers) == 1:
        known = tuple(kind for kind in known if kind not in OF_GROUPS)
    kinds = [kind for kind in known if not dice.chance(f"{kind} is omitted", 0.5)]
    kinds = kinds or [dice.pick("the only kind", known)]
    weights = [dice.spread(f"weight of {kind}", 0.1, 1.0) for kind in kinds]
    count = dice.pick("count", (0, 1, 2, 3, 4, 5), (4, 42, 26, 14, 8, 6))
    drawn = [dice.below(str(number)).pick("kind", kinds, weights) for number in range(count)]
    if "joins beside losses" in _features(case) and dice.chance("joins beside losses", 0.1):
        drawn[:2] = ["join", dice.pick("loss", LOSING)]
    return drawn


def draw_faults(case: Case, clock: Clock) -> Case:
    """Return *case* with faults, and perhaps with a short `dead_s`, to which their lengths are
    scaled.
    """
    dice = Dice(case.seed, "faults")
    features = _features(case)
    dead_s = DEAD_S
    if "impatience" in features and dice.chance("impatient", 0.7):
        dead_s = _short(dice.uniform("dead_s", 0.05, 0.5) * clock.end_s)
        case = replace(case, options=case.options | {"dead_s": dead_s})
    drawer = _Drawer(case, clock, dead_s)
    for number, kind in enumerate(kinds_of(case)):
        drawer.add(dice.below(str(number)), kind)
    return case.with_faults(drawer.faults)


def _features(case: Case) -> set[str]:
    return Dice(case.seed).some("features", FEATURES, OMITTED)


class _Drawer:
    """A drawer of the faults of one plan, one after the other."""

    def __init__(self, case: Case, clock: Clock, dead_s: float) -> None:
        self.case = case
        self.clock = clock
        self.dead_s = dead_s
        self._by_time = "time" in case.document["stop"]
        self.faults: list[dict[str, Any]] = []
        self._last_s = 0.0

    def add(self, dice: Dice, kind: str) -> None:
        fault: dict[str, Any] = {"kind": kind}
        if kind in OF_NODES:
            workers = self.case.workers
            # With a limit on time, hit the first worker more often: if it has had time to train, it
            # represents the run.
            fault["node"] = dice.pick("node", workers, [3, *[1] * (len(workers) - 1)] if self._by_time else None)
            if kind == "join" and any(fault.items() <= other.items() for other in self.faults):
                return  # a node joins only once
        elif kind in OF_LINKS:
            ends = dice.pick("link", self.case.document["topology"]["links"])["between"]
            fault["link"] = "-".join(ends)
            # A half-duplex link is one medium, so its bandwidth has no direction.
            full = kind != "bandwidth"
            if full and dice.chance("one way", 0.3):
                fault["towards"] = dice.pick("towards", ends)
        else:
            fault["groups"] = self._groups(dice)
        self._last_s = self._moment(dice)
        fault["at"] = write_latency(self._last_s)
        self.faults.append(fault | self._rest(dice, kind))

    def _groups(self, dice: Dice) -> list[list[str]]:
        names = dice.sample("order", self.case.workers, len(self.case.workers))
        cut = dice.whole("cut", 1, len(names) - 1)
        rest = names[cut:]
        if len(rest) > 1 and dice.chance("a node of no group", 0.2):
            rest = rest[:-1]
        return [sorted(names[:cut]), sorted(rest)]

    def _moment(self, dice: Dice) -> float:
        end_s, steps_s = self.clock.end_s, self.clock.steps_s
        moment = dice.pick("moment", MOMENTS, OFTEN_BY_TIME if self._by_time else OFTEN)
        if moment == "zero":
            return 0.0
        if moment == "together" and self.faults:
            return self._last_s
        if moment == "boundary" and steps_s:
            return dice.pick("step", steps_s)
        if moment == "soon after" and self.faults:
            return self._last_s + dice.spread("later", 1e-6, 2e-2)
        if moment == "last step" and len(steps_s) > 1:
            return _short(steps_s[-2] + dice.uniform("part", 0.0, 1.0) * (end_s - steps_s[-2]))
        after = moment == "after the end"
        return _short(end_s * (dice.uniform("late", 1.0, 1.5) if after else dice.uniform("share", 0.0, 1.0)))

    def _rest(self, dice: Dice, kind: str) -> dict[str, Any]:
        """Return the keys of a fault of *kind*, except its kind, target and moment."""
        end_s = self.clock.end_s
        if kind in ("crash", "join"):
            return {}
        if kind == "restart":
            share = 1.5 if dice.chance("too late", 0.1) else dice.spread("after", 1e-4, 0.4)
            return {"after": self._time(share * end_s)} | self._again(dice)
        if kind == "leave":
            return {"notice": self._time(dice.spread("notice", 0.01, 1.0) * end_s)} if dice.chance("hurry", 0.4) else {}
        if kind == "flap":
            return self._flaps(dice)
        if kind == "reset":
            return self._again(dice)
        if kind in ("slow", "latency", "bandwidth", "loss"):
            return self._slower(dice, kind) | self._spell(dice, end_s)
        lasts = self._silence(dice)
        return lasts | (self._again(dice) if lasts else {})

    def _slower(self, dice: Dice, kind: str) -> dict[str, Any]:
        if kind == "latency":
            return {"add": self._time(dice.spread("add", 0.001, 0.3) * self.dead_s)}
        if kind == "loss":
            return {"probability": dice.pick("probability", (0.001, 0.02, 0.1))}
        return {"factor": dice.pick("factor", (2, 5, 20) if kind == "slow" else (0.5, 0.1, 0.02))}

    def _flaps(self, dice: Dice) -> dict[str, Any]:
        period_s = dice.spread("period", 0.05, 1.5) * min(self.dead_s, self.clock.end_s)
        lasts = {"for": self._time(dice.uniform("periods", 1.0, 5.0) * period_s), "period": self._time(period_s)}
        return lasts | ({"down": dice.uniform("down", 0.1, 0.9)} if dice.chance("share", 0.5) else {})

    def _silence(self, dice: Dice) -> dict[str, Any]:
        """Return the length of a hang or a cut: shorter than `dead_s`, longer, or none
        for forever.
        """
        form = dice.pick("form", ("short", "long", "ever"), (5, 3, 2))
        if form == "ever":
            return {}
        share = dice.uniform("share of patience", 0.01, 0.9) if form == "short" else dice.uniform("patience", 1.05, 3.0)
        length_s = share * self.dead_s
        return {"for": self._time(min(length_s, 10 * self.clock.end_s) if form == "short" else length_s)}

    def _spell(self, dice: Dice, whole_s: float) -> dict[str, Any]:
        return {} if dice.chance("for ever", 0.2) else {"for": self._time(dice.spread("for", 0.01, 1.0) * whole_s)}

    def _again(self, dice: Dice) -> dict[str, Any]:
        if not dice.chance("again", 0.08):
            return {}
        every_s = dice.uniform("every", 0.1, 0.6) * self.clock.end_s
        return {"every": self._time(every_s), "times": dice.whole("times", 2, 3)}

    def _time(self, time_s: float) -> str:
        return write_latency(max(_short(time_s), 1e-9))


def _short(time_s: float) -> float:
    """Return *time_s* rounded to four digits so that it is easy to read."""
    return float(f"{time_s:.4g}")
