"""A rank that trains a part of the model fills no more of it in a resumed run than in an uninterrupted one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from simcluster.checkpoints.shard import Shard
from simcluster.experiment import node_part
from simcluster.rng import NodeRandom
from simcluster.workloads import Replica, weights
from simcluster.workloads.initial import deferred
from simcluster.workloads.layers import layers
from tests.support.kept import config, hashes, play, play_on

ADAMW = {"name": "mnist_mlp", "hidden": 12, "batch_size": 4, "optimizer": "adamw", "learning_rate": 0.01}
PARTED: dict[str, dict[str, Any]] = {"pipeline": {}, "tensor_parallel": {}, "zero": {"stage": 3}}
WEIGHTS_BYTES = 4 * (785 * 12 + 13 * 10)
"""Two layers, from 784 numbers over 12 to 10, with biases: float32."""


def keys(algorithm: str, workers: int = 3) -> dict[str, Any]:
    topology = {"generator": "star", "workers": workers, "device": "raspberry-pi-4"}
    return config(algorithm, ADAMW, **PARTED[algorithm]) | {"topology": topology}


def present_bytes(replica: Replica) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in replica._live)


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The most bytes of weights that each rank had at once, counted whenever a parameter gets its memory.

    The evaluation at the end, which has the layers in memory one at a time, does not count.
    """
    found: dict[int, int] = defaultdict(int)
    replicas: list[Replica] = []
    allocate, restore, make = deferred.allocate, node_part.restore, node_part.NodePart._make

    def counted(parameter: Tensor) -> None:
        allocate(parameter)
        for replica in (one for one in replicas if any(parameter is own for own in one._trainable)):
            found[replica._rank] = max(found[replica._rank], present_bytes(replica))

    def restored(shard: Shard, replica: Replica, rng: NodeRandom) -> None:
        replicas.append(replica)
        restore(shard, replica, rng)

    def made(self: node_part.NodePart, *given: Any) -> None:
        make(self, *given)
        assert self.replica.is_in_parts
        replicas.append(self.replica)

    for module in (deferred, weights, layers):
        monkeypatch.setattr(module, "allocate", counted)
    monkeypatch.setattr(node_part, "restore", restored)
    monkeypatch.setattr(node_part.NodePart, "_make", made)
    return found


@pytest.mark.parametrize("algorithm", PARTED)
def test_a_resumed_rank_fills_the_share_of_one_that_was_never_stopped(
    algorithm: str, most: dict[int, int], tmp_path: Path
) -> None:
    whole = play(keys(algorithm), tmp_path, {"checkpoint": {"every": 4}})
    share = dict(most)
    most.clear()
    rest = play_on(tmp_path, 4)
    assert hashes(rest) == hashes(whole)
    assert dict(most) == share
    # Pipeline: 785 * 12, 0 and 13 * 10 floats. Shards are tensors apart; the bias of the last layer, 10, is on all.
    # ZeRO: one layer at a time.
    assert max(share.values()) < WEIGHTS_BYTES
    if algorithm == "pipeline":
        assert sum(share.values()) == WEIGHTS_BYTES


def test_a_run_resumed_on_fewer_ranks_fills_the_shares_of_those(most: dict[int, int], tmp_path: Path) -> None:
    play(keys("pipeline", 2), tmp_path / "two")
    share = dict(most)
    play(keys("pipeline"), tmp_path / "three", {"checkpoint": {"every": 4}})
    most.clear()
    play_on(tmp_path / "three", 4, {"topology": keys("pipeline", 2)["topology"]})
    assert dict(most) == share
    assert sum(share.values()) == WEIGHTS_BYTES
