"""Draws a topology, shipped or generated.

A generated one may have unequal nodes and links, stragglers, jitter, loss and small inboxes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any, Final

import networkx
import yaml

from simcluster.documents.shipped import shipped_path
from tools.swarm.draw.dice import Dice

SHAPES = ("star", "complete", "ring", "chain", "tree", "two sites", "shipped")
SHIPPED = {4: "thunderbolt-mesh-4", 5: "smolcluster", 6: "two-sites-wan", 8: "star-8-gigabit"}
"""Number of workers -> name of the shipped topology of that size."""
ODD: Final[dict[str, Callable[[int, Dice], Any]]] = {
    "lollipop": lambda size, dice: networkx.lollipop_graph(max(size // 2, 3), size - max(size // 2, 3)),
    "barbell": lambda size, dice: networkx.barbell_graph(max(size // 3, 2), size - 2 * max(size // 3, 2)),
    "grid": lambda size, dice: networkx.grid_2d_graph(2, size // 2) if size % 2 == 0 else networkx.wheel_graph(size),
    "binary tree": lambda size, dice: networkx.full_rary_tree(2, size),
    "random tree": lambda size, dice: networkx.random_labeled_tree(size, seed=dice.whole("tree", 0, 999)),
    "small world": lambda size, dice: networkx.connected_watts_strogatz_graph(
        size, 3, 0.4, seed=dice.whole("w", 0, 99)
    ),
    "in parts": lambda size, dice: networkx.disjoint_union(networkx.path_graph(size - 2), networkx.path_graph(2)),
}
"""Shape -> a function that makes a graph of at least four workers, which forward messages for
others.

A run on the disconnected graph must be refused.
"""
IN_PARTS: Final = "in-parts"
STAR_OF_SWITCHES: Final = "star of switches"
ODD_SHAPES: Final = (STAR_OF_SWITCHES, *ODD)
DEVICES: tuple[dict[str, Any], ...] = (
    {"device": "raspberry-pi-4"},
    {"device": "x86-laptop"},
    {"device": "mac-mini-m4"},
    {"flops": "1 GFLOP/s", "work_overhead": "2 ms"},
    {"flops": "1 MFLOP/s", "work_overhead": "1 ms"},
)
STRAGGLERS: tuple[dict[str, Any], ...] = (
    {"kind": "constant", "factor": 4},
    {"kind": "lognormal", "sigma": 0.5},
    {"kind": "exponential"},
    {"kind": "pareto", "shape": 2},
    {"kind": "two-point", "probability": 0.2, "factor": 5},
    {"kind": "markov", "factor": 5, "slow": "5 ms", "fast": "10 ms"},
    {"kind": "thermal", "factor": 2, "heating": "5 ms", "cooling": "9 ms"},
)
JITTERS: tuple[Any, ...] = (
    "200 us",
    {"kind": "uniform", "mean": "1 ms"},
    {"kind": "lognormal", "mean": "500 us", "sigma": 1},
)
BANDWIDTHS = ("1 Mbps", "10 Mbps", "100 Mbps", "1 Gbps", "100 kbps")
LATENCIES = ("0 s", "10 us", "100 us", "200 us", "1 ms", "3 ms", "5 ms")
INBOXES = ("64 B", "1 kB", "16 kB")


def draw_topology(dice: Dice, size: int, features: set[str]) -> dict[str, Any]:
    """Return a topology of *size* workers. *features* says which properties it may have."""
    shape = dice.pick("shape", SHAPES, (4, 4, 1, 1, 2, 1, 1))
    if shape == "shipped" and size in SHIPPED:
        return _shipped(SHIPPED[size])
    names = [f"n{rank}" for rank in range(size)]
    if "odd shapes" in features and dice.chance("odd", 0.25):
        shape = dice.pick("odd shape", ODD_SHAPES) if size > 3 else STAR_OF_SWITCHES
    pairs, switches = _pairs(dice, "star" if shape == "shipped" else shape, names)
    made: dict[str, Any] = {"name": shape.replace(" ", "-"), "nodes": {}, "links": []}
    plain = dice.pick("device", DEVICES)
    for name in names:
        made["nodes"][name] = _node(dice.below(name), plain, features)
    made["nodes"] |= {name: {"kind": "switch"} for name in switches}
    usual = {"bandwidth": dice.pick("bandwidth", BANDWIDTHS[:4]), "latency": dice.pick("latency", LATENCIES[2:6])}
    for a, b in pairs:
        made["links"].append({"between": [a, b], **_link(dice.below(f"{a}-{b}"), usual, features)})
    if "small inbox" in features and dice.chance("inbox", 0.4):
        made["inbox"] = dice.pick("inbox size", INBOXES)
    if "rendezvous" in features and dice.chance("rendezvous", 0.15):
        made["inbox"] = "0 B"
    return made


def _shipped(name: str) -> dict[str, Any]:
    path = shipped_path("topologies", name)
    assert path is not None, name
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {key: found[key] for key in ("name", "nodes", "links") if key in found}


def _pairs(dice: Dice, shape: str, names: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (pairs of nodes that a link joins, names of switches) for *shape*."""
    if shape in ODD:
        graph = ODD[shape](len(names), dice)
        places = dict(zip(sorted(graph), dice.sample("places", names, len(names)), strict=True))
        return [(places[a], places[b]) for a, b in sorted(graph.edges)], []
    if shape == STAR_OF_SWITCHES:
        leaves = [f"sw{number}" for number in range(1, 2 + len(names) // 3)]
        own = [(name, dice.pick(f"switch of {name}", leaves)) for name in names]
        return [*own, *((leaf, "sw0") for leaf in leaves)], ["sw0", *leaves]
    if shape == "complete" or (shape == "ring" and len(names) < 3):
        return list(combinations(names, 2)), []
    if shape == "ring":
        return [*pairwise(names), (names[-1], names[0])], []
    if shape == "chain":
        return list(pairwise(names)), []
    if shape == "tree":
        return [(name, dice.pick(f"above {name}", ["sw0", *names[:rank]])) for rank, name in enumerate(names)], ["sw0"]
    if shape == "two sites" and len(names) > 1:
        half = len(names) // 2
        own = [(name, "sw0" if rank < half else "sw1") for rank, name in enumerate(names)]
        return [*own, ("sw0", "sw1")], ["sw0", "sw1"]
    return [(name, "sw0") for name in names], ["sw0"]


def _node(dice: Dice, plain: dict[str, Any], features: set[str]) -> dict[str, Any]:
    node = dict(plain)
    if "unequal devices" in features and dice.chance("unequal", 0.5):
        node = dict(dice.pick("device", DEVICES))
    if "stragglers" in features and dice.chance("straggler", 0.3):
        node["straggler"] = dict(dice.pick("kind", STRAGGLERS))
    if "send buffers" in features and dice.chance("send buffer", 0.4):
        node["send_buffer"] = dice.pick("size", ("64 B", "1 kB", "64 kB"))
    return node


def _link(dice: Dice, usual: dict[str, Any], features: set[str]) -> dict[str, Any]:
    link = dict(usual)
    if "unequal links" in features and dice.chance("unequal", 0.7):
        link = {"bandwidth": dice.pick("bandwidth", BANDWIDTHS), "latency": dice.pick("latency", LATENCIES)}
    if "jitter" in features and dice.chance("jitter", 0.4):
        link["jitter"] = dice.pick("jitter kind", JITTERS)
    if "packet loss" in features and dice.chance("loss", 0.3):
        link["loss"] = dice.pick("share", (0.001, 0.05))
    if "half duplex" in features and dice.chance("half", 0.3):
        link["duplex"] = "half"
    return link
