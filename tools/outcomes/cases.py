"""The rows and columns of the table: small runs of every algorithm, and what happens to one node of each.

Nodes n0, n1, ... around a switch; n2 is hit, or n0.
"""

from __future__ import annotations

import re
from typing import Any, Final

from simcluster.algorithms import ALGORITHMS
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
"""As an experiment has them, with times in shares of the run."""

DEAD: Final = 0.3
"""Who is silent for such a share of the run is dead."""

SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "async_diloco": {"interval": 2},
    "diloco": {"interval": 2},
    "easgd": {"interval": 2},
    "fedbuff": {"interval": 2},
    "local_sgd": {"interval": 2},
    "streaming_diloco": {"interval": 4},
}
"""Short rounds, or runs as short as these would have hardly one."""

DIGITS: Final = {"name": "mnist_mlp", "hidden": 8, "batch_size": 4}
BOWL: Final = {"name": "quadratic", "batch_size": 8}
LAYERED: Final = ("pipeline", "tensor_parallel")
STEPS: Final = 16


def size_of(algorithm: str) -> int:
    return 3 if algorithm == "pipeline" else 4  # the model has three layers


def experiment(algorithm: str, stop: dict[str, Any], keep_every: int = 0, size: int | None = None) -> dict[str, Any]:
    """A small run of *algorithm*, on *size* nodes if given, with a checkpoint every *keep_every* steps; 0: none."""
    names = [f"n{rank}" for rank in range(size or size_of(algorithm))]
    return {
        "name": "outcomes",
        "topology": {
            "name": "star",
            "nodes": {name: {"device": "raspberry-pi-4"} for name in names} | {"sw": {"kind": "switch"}},
            "links": [{"between": [name, "sw"], "bandwidth": "1 Mbps", "latency": "100 us"} for name in names],
        },
        "algorithm": {"name": algorithm, **SETTINGS.get(algorithm, {})},
        "workload": DIGITS if algorithm in LAYERED else BOWL,
        "stop": stop,
        "evaluate_every": 100_000,
    } | ({"checkpoint": {"every": keep_every}} if keep_every else {})


def fault(column: str, whole_s: float) -> dict[str, Any]:
    """What happens in *column* to a run that takes *whole_s*."""
    keys = COLUMNS[column]
    return {key: f"{value * whole_s:.9f} s" if isinstance(value, float) else value for key, value in keys.items()}


def table() -> dict[str, dict[str, str]]:
    """Algorithm -> column -> what docs/faults.md says."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in FAULTS_PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \w+(, \w+)* \|", line)
    ]
    (head,) = [row for row in rows if row[0] == "algorithm"]
    return {
        name: dict(zip(head[1:], row[1:], strict=True))
        for row in rows
        for name in row[0].split(", ")
        if name in ALGORITHMS
    }
