"""The rows and columns of the table: a small run of every algorithm, and a fault in each.

Nodes n0, n1, ... are connected to one switch. The fault hits n2 or n0.
"""

from __future__ import annotations

import re
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
from simcluster.topology import star
from tests.support.root import ROOT

FAULTS_PAGE: Final = ROOT / "docs" / "faults.md"

COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "crash": {"kind": "crash", "node": "n2", "at": 0.4},
    "crash of rank 0": {"kind": "crash", "node": "n0", "at": 0.4},
    "long hang": {"kind": "hang", "node": "n2", "at": 0.4},
    "short hang": {"kind": "hang", "node": "n2", "at": 0.4, "for": 0.1},
    "restart": {"kind": "restart", "node": "n2", "at": 0.3, "after": 0.1},
    "late join": {"kind": "join", "node": "n2", "at": 0.3},
    "leave": {"kind": "leave", "node": "n2", "at": 0.4, "notice": 0.5},
}
"""Column of the table -> its fault as in an experiment, with times as shares of the run."""

DEAD: Final = 0.3
"""The silence after which a node counts as dead, as a share of the run."""

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "async_diloco": {"interval": 2},
    "diloco": {"interval": 2},
    "easgd": {"interval": 2},
    "fedbuff": {"interval": 2},
    "local_sgd": {"interval": 2},
    "streaming_diloco": {"interval": 4},
}
"""Algorithm -> settings for short rounds, since the runs are too short for the default ones."""

DIGITS: Final = {"name": "mnist_mlp", "hidden": 8, "batch_size": 4}
EXPERTS: Final = {"name": "mnist_moe", "hidden": 8, "expert_width": 8, "batch_size": 4}
BOWL: Final = {"name": "quadratic", "batch_size": 8}
LAYERED: Final = ("pipeline", "tensor_parallel")
STEPS: Final = 16


def size_of(algorithm: str) -> int:
    return 3 if algorithm == "pipeline" else 4  # the model has three layers


def experiment(algorithm: str, stop: dict[str, Any], keep_every: int = 0, size: int | None = None) -> dict[str, Any]:
    """Return a small experiment of *algorithm* on *size* nodes, or on a default number if None.

    *keep_every* is the number of steps between checkpoints; 0 means none.
    """
    nodes = star(size or size_of(algorithm), device="raspberry-pi-4", bandwidth="1 Mbps", latency="100 us")
    return {
        "name": "outcomes",
        "topology": dict(nodes.document),
        "algorithm": {"name": algorithm, **SETTINGS.get(algorithm, {})},
        "workload": EXPERTS if algorithm == "expert_parallel" else DIGITS if algorithm in LAYERED else BOWL,
        "stop": stop,
        "evaluate_every": 100_000,
    } | ({"checkpoint": {"every": keep_every}} if keep_every else {})


def fault(column: str, whole_s: float) -> dict[str, Any]:
    """Return the fault of *column* for a run that takes *whole_s*."""
    keys = COLUMNS[column]
    return {key: f"{value * whole_s:.9f} s" if isinstance(value, float) else value for key, value in keys.items()}


def table() -> dict[str, dict[str, str]]:
    """Return algorithm -> column -> the outcome that docs/faults.md promises. A head there may name several columns."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in FAULTS_PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \w+(, \w+)* \|", line)
    ]
    (head,) = [row for row in rows if row[0] == "algorithm"]
    return {
        name: {column: word for heads, word in zip(head[1:], row[1:], strict=True) for column in heads.split(", ")}
        for row in rows
        for name in row[0].split(", ")
        if name in ALGORITHMS
    }
