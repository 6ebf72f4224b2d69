"""One algorithm file, two backends: where the result does not depend on arrival, the same weights to the bit, and the
same bytes and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simcluster
from tests.support.levels import sample_of

SYNCHRONOUS: list[dict[str, Any]] = [
    {"name": "sync_ps"},
    {"name": "all_reduce_dp", "schedule": "ring"},
    {"name": "all_reduce_dp", "schedule": "naive", "initial_weights": "broadcast"},
    {"name": "all_reduce_dp", "bucket_bytes": 1000, "staleness": 1, "accumulate": 2, "compression": "qsgd"},
    {"name": "all_reduce_dp", "compression": {"kind": "top_k", "fraction": 0.05}, "staleness": 1},
    {"name": "one_bit_adam", "warmup": 3},
]
WORKLOADS: list[dict[str, Any]] = [
    {"optimizer": "adamw", "learning_rate": 0.001},
    {
        "optimizer": "adamw",
        "learning_rate": 0.001,
        "scale": "sqrt",
        "weight_decay": 0.1,
        "dropout": 0.2,
        "precision": "bf16",
        "schedule": {"kind": "cosine", "warmup_steps": 3, "min_learning_rate": 0.0001},
    },
    {"momentum": 0.9, "learning_rate": 0.02, "partition": "dirichlet", "alpha": 0.3, "clip_norm": 1.0},
    {
        "name": "gpt",
        "width": 16,
        "kv_heads": 2,
        "head_width": 6,
        "experts": 3,
        "context": 4,
        "batch_size": 100,
        "partition": "redeal",
        "tail": "pad",
        "data": str(Path(simcluster.__file__).parents[1] / "LICENSE"),
    },
]


def experiment(size: int, algorithm: dict[str, Any], steps: int = 12, **workload: Any) -> dict[str, Any]:
    return {
        "name": "equivalence",
        "topology": {"generator": "star", "workers": size},
        "algorithm": algorithm,
        "workload": workload if "name" in workload else {"name": "mnist_mlp", "hidden": 32, **workload},
        "stop": {"steps": steps},
        "seed": 5,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "algorithm", "workload"),
    [
        *((3, algorithm, {}) for algorithm in SYNCHRONOUS),
        *((3, SYNCHRONOUS[0], workload) for workload in WORKLOADS),
        *sample_of([(size, algorithm, {}) for size in (2, 5) for algorithm in SYNCHRONOUS], 12, 6),
    ],
    ids=str,
)
def test_simulator_and_sockets_agree_to_the_bit(
    size: int, algorithm: dict[str, Any], workload: dict[str, Any], tmp_path: Path
) -> None:
    source = experiment(size, algorithm, **workload)
    simulated = simcluster.run(source, out=tmp_path / "sim", report=False)
    real = simcluster.run(source, backend="sockets", out=tmp_path / "sockets", report=False)
    for key in ("weights_sha256", "bytes_sent", "messages_sent", "steps", "loss", "accuracy"):
        assert simulated.summary.get(key) == real.summary.get(key), key
    for node, numbers in simulated.summary["nodes"].items():
        for key in ("weights_sha256", "bytes_sent", "bytes_received", "messages_sent"):
            assert numbers[key] == real.summary["nodes"][node][key], f"{key} of {node}"
    for link, numbers in simulated.summary["links"].items():
        assert numbers["bytes"] == real.summary["links"][link]["bytes"] > 0, link
