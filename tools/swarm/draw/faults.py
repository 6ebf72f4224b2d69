"""Draws a fault plan for a case whose undisturbed run is known: random moments and nasty ones, random kinds."""

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
"""The default of *dead_s*."""

MOMENTS: Final = ("anywhere", "zero", "together", "boundary", "soon after", "last step", "after the end")
OFTEN: Final = (8, 1, 1, 2, 3, 2, 1)
OFTEN_BY_TIME: Final = (6, 1, 1, 2, 3, 5, 0)
"""How often each is drawn, the second where the time ends the run: nothing happens after that, and much just before."""


@dataclass(frozen=True)
class Clock:
    """When things happen in an undisturbed run: its end, and the ends of steps."""

    end_s: float
    steps_s: Sequence[float]


def kinds_of(case: Case) -> list[str]:
    """The kinds of the faults of *case*, which do not depend on how its undisturbed run goes."""
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
    """*case* with faults, and with the patience that they are drawn for."""
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
    """The faults of one plan, one after the other."""

    def __init__(self, case: Case, clock: Clock, dead_s: float) -> None:
        self.case, self.clock, self.dead_s = case, clock, dead_s
        self._by_time = "time" in case.document["stop"]
        self.faults: list[dict[str, Any]] = []
        self._last_s = 0.0

    def add(self, dice: Dice, kind: str) -> None:
        fault: dict[str, Any] = {"kind": kind}
        if kind in OF_NODES:
            workers = self.case.workers
            # The first stands for the run, if the time that is left lets it train.
            fault["node"] = dice.pick("node", workers, [3, *[1] * (len(workers) - 1)] if self._by_time else None)
            if kind == "join" and any(fault.items() <= other.items() for other in self.faults):
                return  # a node joins once
        elif kind in OF_LINKS:
            ends = dice.pick("link", self.case.document["topology"]["links"])["between"]
            fault["link"] = "-".join(ends)
            full = kind != "bandwidth"  # half duplex is one medium
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
        """Return the settings of *kind* besides a target and a moment."""
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
        """How long a hang or a cut lasts: shorter than a node is waited for, longer, or for ever."""
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
    """Of few digits, so that it can be read."""
    return float(f"{time_s:.4g}")
