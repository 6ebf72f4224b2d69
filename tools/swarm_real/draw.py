"""Draws a seed of the real swarm: a small run, its fault plan, and acts on its processes from
outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from tools.outcomes.cases import LAYERED
from tools.swarm.case import Case
from tools.swarm.draw.dice import Dice
from tools.swarm.draw.settings import draw_settings

PACED: Final = Path(__file__).with_name("paced.py")
LAYERS: Final = 3
"""The number of layers in the model that layered algorithms split."""
DEAD_S: Final = 5.0
"""The timeout for cases without long silences.

It is generous, since a launcher on a busy machine may not hear its nodes for a while.
"""
SOON_DEAD_S: Final = 2.5
ALONE: Final = 10
"""One seed in this many runs in a new process, which imports everything again."""

PLANNED: Final = ("crash", "restart", "join", "leave", "hang", "slow", "cut", "flap", "partition", "reset")
FROM_OUTSIDE: Final = ("kill", "stop", "term", "post")
AS_FAULT: Final = {"kill": "crash", "stop": "hang", "term": "leave", "post": "leave"}


@dataclass(frozen=True)
class Act:
    """An act on the process of *node*, as soon as some node has computed *gradients* gradients.

    It is SIGKILL, SIGSTOP for *for_s* (forever if None), SIGTERM, or a request to the coordinator.
    """

    kind: str
    node: str
    gradients: int
    for_s: float | None = None

    @property
    def fault(self) -> dict[str, Any]:
        """The planned fault that would have the same effect."""
        lasts = {} if self.for_s is None else {"for": f"{self.for_s} s"}
        return {"kind": AS_FAULT[self.kind], "node": self.node, "at": f"{self.gradients} us", **lasts}


@dataclass(frozen=True)
class Drawn:
    """The draw of one seed.

    A gradient takes *pace_s*. If *alone*, the command runs in a new process.
    """

    case: Case
    acts: tuple[Act, ...]
    pace_s: float
    alone: bool


def draw(seed: int) -> Drawn:
    """Return the draw of *seed*."""
    dice = Dice(seed, "real")
    algorithm = sorted(ALGORITHMS)[seed % len(ALGORITHMS)]
    size = min(dice.pick("size", (2, 3, 4), (3, 4, 3)), LAYERS if algorithm == "pipeline" else 4)
    steps, length_s = dice.whole("steps", 8, 24), dice.spread("length", 0.6, 2.5)
    kinds = [dice.below(str(n)).pick("kind", (*PLANNED, *FROM_OUTSIDE)) for n in range(dice.whole("count", 1, 2))]
    dead_s = SOON_DEAD_S if {"hang", "stop", "cut", "partition"} & {*kinds} and dice.chance("long", 0.6) else DEAD_S
    document = _document(dice, algorithm, [f"n{rank}" for rank in range(size)], steps, length_s)
    drawer = _Drawer(document, length_s, dead_s)
    for number, kind in enumerate(kinds):
        drawer.add(dice.below(str(number)), kind)
    document["faults"] = drawer.faults
    case = Case(seed, document, {"dead_s": dead_s, "stuck_s": 20.0} | _options(dice.below("options"), size))
    return Drawn(case, tuple(drawer.acts), length_s / steps, seed % ALONE == 0)


def _document(dice: Dice, algorithm: str, names: list[str], steps: int, length_s: float) -> dict[str, Any]:
    settings = draw_settings(dice.below("settings"), algorithm, len(names), dice.chance("varied", 0.5))
    if "timeout_s" in settings:
        settings["timeout_s"] = dice.uniform("timeout", 0.3, 1.0)
    workload: dict[str, Any] = {"path": f"{PACED}:paced_quadratic", "batch_size": 4}
    if algorithm in LAYERED:
        workload = {"path": f"{PACED}:paced_digits", "batch_size": 4, "hidden": 2 * len(names)}
    if algorithm == "expert_parallel":
        workload = {"path": f"{PACED}:paced_experts", "batch_size": 4}
    document: dict[str, Any] = {
        "name": "swarm",
        "topology": _topology(names, dice.chance("switch", 0.7)),
        "algorithm": {"name": algorithm, **settings},
        "workload": workload,
        "stop": {"steps": steps} | ({"time": f"{length_s} s"} if dice.chance("by time", 0.15) else {}),
        "seed": dice.whole("seed", 0, 999),
        "evaluate_every": 100_000,
    }
    if dice.chance("keeps", 0.6):
        document["checkpoint"] = {"every": dice.whole("every", 1, 5), "keep": dice.whole("keep", 1, 3)}
    return document | ({"regroup": False} if dice.chance("stays", 0.15) else {})


def _topology(names: list[str], switch: bool) -> dict[str, Any]:
    pairs = [(name, "sw") for name in names] if switch else list(combinations(names, 2))
    nodes = {name: {"device": "raspberry-pi-4"} for name in names} | ({"sw": {"kind": "switch"}} if switch else {})
    links = [{"between": list(pair), "bandwidth": "100 Mbps", "latency": "100 us"} for pair in pairs]
    return {"name": "star" if switch else "complete", "nodes": nodes, "links": links}


def _options(dice: Dice, size: int) -> dict[str, Any]:
    restarts = {"max_restarts": dice.whole("most", 1, 2)} if dice.chance("restarts", 0.35) else {}
    return restarts | ({"min_workers": dice.whole("least", 1, size - 1)} if dice.chance("does not wait", 0.1) else {})


class _Drawer:
    """A drawer of the *faults* of one plan and the *acts* from outside."""

    def __init__(self, document: dict[str, Any], length_s: float, dead_s: float) -> None:
        self._links = ["-".join(link["between"]) for link in document["topology"]["links"]]
        self._names = [name for name in document["topology"]["nodes"] if name != "sw"]
        self._length_s = length_s
        self._steps = document["stop"]["steps"]
        self._dead_s = dead_s
        self.faults: list[dict[str, Any]] = []
        self.acts: list[Act] = []

    def add(self, dice: Dice, kind: str) -> None:
        node = dice.pick("node", self._names)
        if kind in FROM_OUTSIDE:
            gradients = dice.whole("gradients", 0 if kind == "kill" else 1, self._steps)
            self.acts.append(Act(kind, node, gradients, self._silence_s(dice) if kind == "stop" else None))
            return
        if kind == "join" and any(fault["kind"] == "join" and fault["node"] == node for fault in self.faults):
            return  # a node joins only once
        fault: dict[str, Any] = {"kind": kind, "node": node}
        if kind in ("cut", "flap"):
            fault = {"kind": kind, "link": dice.pick("link", self._links)}
        elif kind in ("partition", "reset"):
            fault = {"kind": kind, "groups": [[node], [name for name in self._names if name != node]]}
        at_s = dice.uniform("at", 0.0, 1.2) * self._length_s
        self.faults.append(fault | {"at": _time(at_s)} | self._rest(dice, kind))

    def _rest(self, dice: Dice, kind: str) -> dict[str, Any]:
        if kind == "restart":
            return {"after": _time(dice.spread("after", 0.02, 0.4) * self._length_s)}
        if kind == "leave":
            return {"notice": _time(dice.spread("notice", 0.1, 3.0))} if dice.chance("hurry", 0.3) else {}
        if kind == "slow":
            return {"factor": dice.pick("factor", (2, 5)), "for": _time(self._length_s / 2)}
        if kind == "flap":
            return {"for": _time(self._length_s / 2), "period": "200 ms"}
        lasts_s = self._silence_s(dice) if kind in ("hang", "cut", "partition") else None
        return {} if lasts_s is None else {"for": _time(lasts_s)}

    def _silence_s(self, dice: Dice) -> float | None:
        """Return the length of a silence, or None for forever.

        It is well below *dead_s*. But if *dead_s* is short, the length often exceeds it.
        """
        if self._dead_s == SOON_DEAD_S and dice.chance("longer", 0.8):
            return None if dice.chance("for good", 0.5) else 2 * self._dead_s
        return dice.uniform("lasts", 0.1, 0.6)


def _time(time_s: float) -> str:
    return f"{time_s * 1000:.0f} ms"
