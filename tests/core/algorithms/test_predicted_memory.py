"""The predicted peak of each rank that holds a part of a model, by hand; the check before a run agrees to the byte."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import simcluster
from simcluster.algorithms.model_parallel.gathering import gathering_bytes
from simcluster.errors import UsageError
from simcluster.workloads import Replica, adamw
from simcluster.workloads.layers.part import count_part

OWN = """
import torch
from torch import nn
from simcluster import Workload
from simcluster.workloads import sgd

def two_layers():
    data = (torch.ones(8, 4), torch.arange(8) % 4)
    model = lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    return Workload(model, nn.functional.cross_entropy, data, sgd(0.1), 2)

def between():
    data = (torch.ones(8, 4), torch.arange(8) % 4)
    model = lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
    return Workload(model, nn.functional.cross_entropy, data, sgd(0.1), 2)
"""
LAYER = 4 * 4 * 4
"""Bytes of the weights of one of the two layers."""

DATA = 8 * (4 * 4 + 8)
BATCH = 2 * (4 * 4 + 8)
OUTPUT = 2 * 4 * 4
"""Two samples after a layer."""

LOSS = 2 * 4 * 4 + 4 + 4
"""What the loss of two samples keeps: their log-probabilities, its scale, and itself."""


def experiment(folder: Path, algorithm: Any, workload: str = "two_layers", **devices: str) -> dict[str, Any]:
    (folder / "own.py").write_text(OWN)
    nodes = {name: {"flops": "1 GFLOP/s"} | ({"memory": devices[name]} if name in devices else {}) for name in "ab"}
    return {
        "topology": {"nodes": nodes, "links": [{"between": ["a", "b"], "type": "ethernet-1g"}]},
        "algorithm": algorithm,
        "workload": {"path": f"{folder}/own.py:{workload}"},
        "stop": {"steps": 2},
    }


def predicted(folder: Path, algorithm: Any, backend: str = "sim", **keys: Any) -> list[int]:
    run = simcluster.run(experiment(folder, algorithm, **keys), backend=backend, out=folder / backend, report=False)
    return [node["predicted_peak_bytes"] for node in run.summary["nodes"].values()]


@pytest.mark.slow
def test_a_stage_holds_its_layers_and_the_activations_of_the_micro_batches_in_flight(tmp_path: Path) -> None:
    # Both hold one layer, the sum of its gradients and one that is added, the samples, and the joined batch of 4; an
    # output of 2 samples leaves while the gradient by it comes.
    both = 3 * LAYER + DATA + 2 * BATCH + OUTPUT
    # One forward, one backward: the first rank keeps the outputs of both micro-batches, the last one's loss and input.
    assert predicted(tmp_path, "pipeline") == [both + 2 * OUTPUT, both + OUTPUT + LOSS]
    # GPipe: the last rank keeps both as well.
    gpipe = predicted(tmp_path, {"name": "pipeline", "schedule": "gpipe"})
    assert gpipe == [both + 2 * OUTPUT, both + 2 * (OUTPUT + LOSS)]


@pytest.mark.slow
def test_zero_holds_a_part_of_what_its_stage_partitions(tmp_path: Path) -> None:
    # Of two layers between two ranks, each owns half: as much as one layer. What is kept from forward to backward:
    rest = DATA + BATCH + OUTPUT + LOSS
    # Stage 1: the weights, the part that is updated, all gradients, and the last one as it was found.
    assert predicted(tmp_path, {"name": "zero", "stage": 1}) == [2 * LAYER + LAYER + 2 * LAYER + LAYER + rest] * 2
    # Stage 2: the sums of its part; of the first layer the gradient, the same as a vector; the second's in flight,
    # of which half leaves while half comes.
    assert predicted(tmp_path, {"name": "zero", "stage": 2}) == [3 * LAYER + LAYER + 3 * LAYER + LAYER + rest] * 2
    # Stage 3: the part alone; a layer as it came and in its place, the next one; and the sums of its part, in flight.
    assert predicted(tmp_path, {"name": "zero", "stage": 3}) == [LAYER + 3 * LAYER + LAYER + LAYER + rest] * 2


def test_a_tensor_parallel_rank_holds_its_shards_and_rank_0_the_whole_at_the_end(tmp_path: Path) -> None:
    # Layers of 4 x 8 and 8 x 4 numbers, split in two: 64 bytes of each, in one piece.
    shards = 2 * 4 * 4 * 4
    # Gradients twice: their sums and what the piece adds. Of 4 joined samples: 4 hidden numbers after the ReLU and 4
    # outputs; the loss. The sum over ranks is 4 x 4 numbers: the share, the total, and half out while half comes.
    summed = 4 * 4 * 4
    kept = 4 * 4 * 4 + summed + summed + (4 * 4 * 4 + 4 + 4)
    found = predicted(tmp_path, "tensor_parallel", workload="between")
    assert found == [shards + 2 * shards + DATA + 2 * BATCH + kept + 2 * summed] * 2


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pipeline", {"name": "zero", "stage": 3}, "all_reduce_dp"])
def test_a_device_with_the_predicted_memory_runs_and_with_a_byte_less_does_not(tmp_path: Path, algorithm: Any) -> None:
    limits = dict(zip("ab", predicted(tmp_path, algorithm), strict=True))
    assert predicted(tmp_path, algorithm, **{name: f"{limit} B" for name, limit in limits.items()}) == [
        *limits.values()
    ]
    for name, limit in limits.items():
        with pytest.raises(UsageError, match=rf"nodes\.{name}\.memory: found .* 1 B too little"):
            predicted(tmp_path, algorithm, **{name: f"{limit - 1} B"})


@pytest.mark.slow
def test_a_real_run_states_the_simulators_prediction(tmp_path: Path) -> None:
    assert predicted(tmp_path, "pipeline", backend="sockets") == predicted(tmp_path, "pipeline")


@pytest.mark.slow
def test_a_real_node_also_holds_two_steps_from_which_its_group_continues_after_a_loss(tmp_path: Path) -> None:
    # Plain descent has no state, so each is the weights of both layers. The simulator knows that no node will be lost.
    simulated = predicted(tmp_path, "all_reduce_dp")
    assert predicted(tmp_path, "all_reduce_dp", backend="sockets") == [each + 2 * 2 * LAYER for each in simulated]


def test_the_optimizers_temporaries_are_counted() -> None:
    # Two parameters of 64 bytes. AdamW makes two tensors for each, while one of the parameter before is still there.
    part = count_part([torch.ones(4, 4), torch.ones(4, 4)], adamw(0.1), None, "")
    assert part.state_bytes == 4 * LAYER + 2 * 4  # two moments, and a count of steps
    assert part.scratch_bytes == 3 * LAYER


def test_rank_0_gathers_two_stretches_of_the_others_weights_at_a_time() -> None:
    shapes = [torch.empty(2**22, device="meta") for _ in range(5)]  # 16 MiB each: a stretch
    replica = cast(Replica, SimpleNamespace(shapes=shapes))
    assert gathering_bytes(replica, {1, 2, 3, 4}) == 2 * 2**24  # 80 MiB are in a file on disk
    assert gathering_bytes(replica, {4}) == 2**24
    small = cast(Replica, SimpleNamespace(shapes=[torch.empty(4, 4, device="meta")] * 2))
    assert gathering_bytes(small, {1}) == LAYER + 2 * LAYER  # in one stretch; the file is in memory
