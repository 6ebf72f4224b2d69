"""Draws a case without its faults from a seed: algorithm, topology, workload and stop."""

from __future__ import annotations

from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import Facts, facts_of
from tools.swarm.case import DRAWING, KIN, NOISY, NORMED, SLOPE, Case
from tools.swarm.draw.dice import Dice
from tools.swarm.draw.settings import draw_settings
from tools.swarm.draw.topology import draw_topology
from tools.swarm.models import PLACES, SOURCES

FEATURES: Final = dict.fromkeys((
    "unequal devices", "stragglers", "unequal links", "jitter", "packet loss", "half duplex", "small inbox",
    "rendezvous", "send buffers", "settings", "stop by time", "epochs", "checkpoints", "regroup off", "restarts",
    "slope", "digits", "impatience", "several threads", "many nodes", "odd shapes", "normed", "global draws",
    "sizes by node", "joins beside losses",
))  # fmt: skip
"""Features that a case may have.

Each seed omits some at random, because many would never occur alone if all were possible at once.
"""

OMITTED: Final = 0.4
LAYERED: Final = ("pipeline", "tensor_parallel")
"""Algorithms that split a model by its layers. The swarm trains mnist_mlp with them."""

OVERLAPPING: Final = "streaming_diloco"
"""An algorithm with overlapping collectives.

With a small inbox they may block each other: see docs/network.md.
"""

SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8)
SHARES: Final = (2, 14, 30, 30, 12, 6, 2, 4)
MOST: Final = 12
"""The maximum number of nodes, which few cases have."""


def draw_case(seed: int) -> Case:
    """Return the case of *seed*, without faults."""
    dice = Dice(seed)
    features = dice.some("features", FEATURES, OMITTED)
    algorithm = dice.pick("algorithm", sorted(ALGORITHMS))
    size = dice.pick("size", SIZES, SHARES)
    if "many nodes" in features and dice.chance("many nodes", 0.08):
        size = dice.whole("nodes", SIZES[-1] + 1, MOST)
    if algorithm == "pipeline":
        size = min(size, 3)  # the model has three layers
    chosen = {"name": algorithm, **_settings(dice, algorithm, size, features)}
    facts = facts_of(ALGORITHMS[algorithm])
    if algorithm == KIN and "global draws" in features and dice.chance("own algorithm", 0.4):
        chosen, facts = {"path": NOISY}, Facts()
    is_uneven = False
    topology = draw_topology(dice.below("topology"), size, features)
    workload = _workload(dice.below("workload"), algorithm, size, features)
    if "sizes by node" in features and dice.chance("sizes by node", 0.1):
        workload |= _sizes(dice.below("sizes"), _workers(topology), chosen, facts)
        is_uneven = len(set(workload["batch_size"].values())) > 1
    document: dict[str, Any] = {
        "name": "swarm",
        "topology": topology,
        "algorithm": chosen,
        "workload": workload,
        "stop": _stop(dice.below("stop"), features),
        "seed": dice.whole("seed", 0, 999),
    }
    if algorithm == OVERLAPPING:
        document["topology"].pop("inbox", None)
    if "checkpoints" in features and dice.chance("keeps", 0.6):
        document["checkpoint"] = {"every": dice.whole("every", 1, 4), "keep": dice.whole("keep", 1, 3)}
    if "regroup off" in features and dice.chance("regroup", 0.2):
        document["regroup"] = False
    if is_uneven and facts.in_step and dice.chance("sizes stay", 0.8):
        document["regroup"] = False  # otherwise, faults that may lose a node would be refused
    if dice.chance("judged once", 0.5):
        document["evaluate_every"] = 100_000
    return Case(seed, document, _options(dice.below("options"), features))


def _settings(dice: Dice, algorithm: str, size: int, features: set[str]) -> dict[str, Any]:
    return draw_settings(dice.below("settings"), algorithm, size, "settings" in features)


def _workload(dice: Dice, algorithm: str, size: int, features: set[str]) -> dict[str, Any]:
    if algorithm in LAYERED:
        return {"name": "mnist_mlp", "hidden": 2 * size, "batch_size": 4}
    if algorithm == "expert_parallel":
        return {"name": "mnist_moe", "hidden": 4, "expert_width": 4, "experts": 12, "batch_size": 4}
    if "digits" in features and dice.chance("digits", 0.06):
        return {"name": "mnist_mlp", "hidden": 4, "batch_size": 2}
    samples = {} if size in SIZES else {"samples": 16 * size}
    if "normed" in features and dice.chance("normed", 0.06):
        return {"path": NORMED, "samples": 16 * size, "batch_size": 8, "momentum": dice.pick("momentum", (0.9, 1.0))}
    if "global draws" in features and dice.chance("global draws", 0.06):
        drawn = {"place": dice.pick("place", PLACES), "source": dice.pick("source", sorted(SOURCES))}
        return {"path": DRAWING, "samples": 16 * size, "batch_size": 4} | drawn
    if "slope" in features and dice.chance("slope", 0.3):
        return {"path": SLOPE, "features": dice.pick("width", (1, 4, 9)), **samples}
    sizes = {"features": dice.pick("features", (1, 3, 8, 8)), "batch_size": dice.pick("batch", (1, 4, 8))}
    return {"name": "quadratic", "samples": 64, **samples, **sizes, "dtype": dice.pick("dtype", ("float32", "float64"))}


def _workers(topology: dict[str, Any]) -> list[str]:
    return [name for name, node in topology["nodes"].items() if node.get("kind", "worker") == "worker"]


def _sizes(dice: Dice, names: list[str], chosen: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """Return batch sizes by node.

    They may differ only if the algorithm weighs averages by samples.
    """
    form = "equal" if facts.evenly(chosen) else dice.pick("form", ("equal", "unequal", "by speed"))
    least = 4  # batch normalisation needs more than one sample
    if form == "by speed":
        return {"batch_size": {"total": least * len(names) + dice.whole("more", 0, 9), "by": "device"}}
    if form == "unequal":
        return {"batch_size": {name: dice.whole(name, least, 8) for name in names}}
    return {"batch_size": dict.fromkeys(names, dice.pick("size", (least, 8)))}


def _stop(dice: Dice, features: set[str]) -> dict[str, Any]:
    stop: dict[str, Any] = {"steps": dice.whole("steps", 1, 12)}
    if "epochs" in features and dice.chance("epochs", 0.1):
        stop = {"epochs": dice.pick("passes", (0.2, 0.5, 1.0, 1.5))}
    if "stop by time" in features and dice.chance("time", 0.25):
        stop |= {"time": f"{dice.spread('moment', 2, 200)} ms"}
    return stop


def _options(dice: Dice, features: set[str]) -> dict[str, Any]:
    options: dict[str, Any] = {"threads": 2 if "several threads" in features and dice.chance("threads", 0.1) else 1}
    if "restarts" in features and dice.chance("restarts", 0.5):
        options["max_restarts"] = dice.whole("most", 1, 2)
    return options
