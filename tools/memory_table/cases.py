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
"""Size of the model -> its number of layers, which have 50 MB each."""

MOST_RATIO = 1.3
"""The limit on a process's growth, relative to the prediction."""

PATIENT = {"start_s": 600.0, "dead_s": 90.0}
"""Long timeouts, since four processes share a machine that may also be busy otherwise."""

EVALUATIONS = (5, 50)
MOST_APART = 0.1
"""The limit on the relative difference between rank 0's growth over few and over many
EVALUATIONS.
"""


@dataclass(frozen=True)
class Row:
    """The measured and the predicted memory growth of one node in one run."""

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
    """Train for three steps on four processes. Return the growth of each process."""
    nodes = _nodes(4, ALGORITHMS[algorithm], SIZES[size], 3, folder)
    return [
        Row(algorithm, size, name, node["grown_rss_bytes"], node["predicted_peak_bytes"])
        for name, node in nodes.items()
    ]


def over_evaluations(count: int, folder: Path) -> int:
    """Return the growth of rank 0 with a model of 100 MB over *count* steps, each with an
    evaluation.
    """
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
