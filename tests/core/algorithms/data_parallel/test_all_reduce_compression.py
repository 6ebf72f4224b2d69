"""all_reduce_dp with compressed gradients: learning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.compression import KINDS
from simcluster.workloads import mnist_mlp
from tests.core.algorithms.data_parallel.all_reduce_runs import SEED, train
from tests.support.clusters import star


@pytest.mark.parametrize("kind", KINDS)
def test_digits_are_learnt_with_every_compression_and_replicas_agree(kind: str) -> None:
    workload = mnist_mlp(hidden=16)
    compression: dict[str, Any] = {"kind": kind}
    if kind in ("top_k", "random_k"):
        compression |= {"fraction": 0.1, "error_feedback": True}
    replicas, _, _ = train(star(2), workload=workload, steps=60, compression=compression)
    assert replicas[0].evaluate()["accuracy"] > 0.6
    assert replicas[0].weights_sha256() == replicas[1].weights_sha256()


def test_int8_leaves_small_steps_alone() -> None:
    # Gradients travel quantised, weights are never: at a learning rate of 1e-4 a weight quantised anew every step would
    # not move at all.
    workload = mnist_mlp(hidden=16, learning_rate=1e-4)
    start = workload.replica(0, 2, SEED, 1).parameters
    moved = []
    for compression in ("none", "int8"):
        replicas, _, _ = train(star(2), workload=workload, steps=10, compression=compression)
        moved.append(torch.cat([(a - b).flatten() for a, b in zip(replicas[0].parameters, start, strict=True)]))
    assert float((moved[1] - moved[0]).norm()) < 0.1 * float(moved[0].norm())
