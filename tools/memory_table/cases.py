"""The runs of the table, and its limits."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simcluster
from tests.support.root import ROOT

MODEL = ROOT / "tools" / "memory_table" / "model.py"

ALGORITHMS: dict[str, Any] = {
    "pipeline": "pipeline",
    "tensor_parallel": "tensor_parallel",
    "ZeRO-3": {"name": "zero", "stage": 3},
}
SIZES = {"200 MB": 4, "1 GB": 20}
"""Layers of 50 MB each."""

MOST_RATIO = 1.3
"""Of what a process grows by to what was predicted."""

PATIENT = {"start_s": 600.0, "dead_s": 90.0}
"""Four processes of one machine, which other work may slow down."""

EVALUATIONS = (5, 50)
MOST_APART = 0.1
"""Of growth over EVALUATIONS[1] evaluations to that over EVALUATIONS[0]."""


@dataclass(frozen=True)
class Row:
    """One node of one run."""

    algorithm: str
    size: str
    node: str
    grown_bytes: int
    predicted_bytes: int

    @property
    def ratio(self) -> float:
        return self.grown_bytes / self.predicted_bytes

    @property
    def is_within(self) -> bool:
        return self.ratio <= MOST_RATIO


def grown(algorithm: str, size: str, folder: Path) -> list[Row]:
    """Train three steps on four processes, and return what each grew by."""
    nodes = _nodes(4, ALGORITHMS[algorithm], SIZES[size], 3, folder)
    return [
        Row(algorithm, size, name, node["grown_rss_bytes"], node["predicted_peak_bytes"])
        for name, node in nodes.items()
    ]


def over_evaluations(count: int, folder: Path) -> int:
    """Return what rank 0 grows by over *count* steps with a model of 100 MB, each evaluated."""
    return int(_nodes(2, "all_reduce_dp", 2, count, folder)["n0"]["grown_rss_bytes"])


def _nodes(workers: int, algorithm: Any, layers: int, steps: int, folder: Path) -> dict[str, Any]:
    keys = {
        "topology": {"generator": "star", "workers": workers},
        "algorithm": algorithm,
        "workload": {"path": f"{MODEL}:model", "layers": layers},
        "stop": {"steps": steps},
        "evaluate_every": 1,
    }
    run = simcluster.run(keys, backend="sockets", out=folder, report=False, options=PATIENT)
    shutil.rmtree(folder)
    nodes: dict[str, Any] = run.summary["nodes"]
    return nodes
