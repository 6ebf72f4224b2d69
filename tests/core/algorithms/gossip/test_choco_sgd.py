"""CHOCO-SGD against its loop in one process; the mean kept by any compressor, consensus reached, and few bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.compression import KINDS
from simcluster.errors import PeerLost, UsageError
from simcluster.lab.verify.claims.gossip import TOP
from simcluster.lab.verify.claims.gossip import choco_sgd as reference
from simcluster.workloads import quadratic, sgd, train_alone
from tests.core.algorithms.gossip.runs import INSTANT, SEED, WORKLOAD, noise, run
from tests.core.workloads.costs.test_timing_only import both, same_time_and_messages
from tests.support.clusters import star, with_nodes

DEFAULTS: dict[str, Any] = {
    "overlay": "ring",
    "compression": "none",
    "gamma": 1.0,
    "consensus_every": 0,
    "output": "local",
}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "settings",
    [{}, {"compression": TOP, "gamma": 0.4}, {"overlay": "star", "gamma": 0.7, "output": "mean"}],
    ids=str,
)
def test_every_rank_ends_where_the_loop_over_all_copies_does(settings: dict[str, Any], size: int) -> None:
    ran = run("choco_sgd", size, **settings)
    expected = reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings})
    for replica, weights in zip(ran.replicas, expected, strict=True):
        torch.testing.assert_close(replica.parameters, list(weights), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_the_compressor_the_mean_is_kept(kind: str) -> None:
    # The gradients are noise that does not depend on the weights, so the mean's way is that of a mean of noise.
    steps, eta = 15, 0.1
    workload = noise(64, 5, steps, eta)
    ran = run("choco_sgd", 5, workload=workload, steps=steps, compression=kind, gamma=0.2)
    free = run("d_psgd", 5, workload=workload, steps=steps, overlay="complete")
    assert np.abs(ran.weights.mean(axis=0) - free.weights.mean(axis=0)).max() <= 1e-9


@pytest.mark.parametrize(
    ("compression", "gamma"), [({"kind": "top_k", "fraction": 0.1}, 0.15), ("int8", 1.0), ("sign", 0.2)], ids=str
)
def test_ranks_stay_together_under_noise(compression: Any, gamma: float) -> None:
    workload = noise(40, 5, 30, 0.1)
    together = run("choco_sgd", 5, workload=workload, steps=30, compression=compression, gamma=gamma)
    apart = run("choco_sgd", 5, workload=workload, steps=30, gamma=1e-9)
    spread = [float(((ran.weights - ran.weights.mean(axis=0)) ** 2).sum()) for ran in (together, apart)]
    assert spread[0] < 0.5 * spread[1], "than ranks that hardly average"


@pytest.mark.slow
def test_a_tenth_of_the_numbers_learns_what_all_of_them_learn() -> None:
    workload = replace(quadratic(features=40, batch_size=8, dtype="float32", noise=0.0), optimizer=sgd(0.05))
    dense = run("choco_sgd", 4, workload=workload, steps=150)
    small = run("choco_sgd", 4, workload=workload, steps=150, compression={"kind": "top_k", "fraction": 0.1}, gamma=0.3)
    losses = [ran.replicas[0].evaluate()["loss"] for ran in (dense, small)]
    assert losses[1] < 1e-3
    assert losses[0] < 1e-3
    # Of 40 numbers of 4 bytes, 4 with their places: 4 bytes each, or fewer.
    sent = [ran.records[0].bytes_sent / (150 * 2) for ran in (dense, small)]
    assert sent[0] - sent[1] >= 160 - 4 * (4 + 8) - 40, "40 more bytes of a header may tell of a second tensor"


def test_uncompressed_it_is_d_psgd_and_on_the_complete_graph_one_process() -> None:
    gossip = run("d_psgd", 5, order="step_then_mix").weights
    assert np.abs(run("choco_sgd", 5).weights - gossip).max() <= 1e-12
    alone = torch.cat([p.reshape(-1) for p in train_alone(WORKLOAD, 4, SEED, 12)]).numpy()
    assert np.abs(run("choco_sgd", 4, overlay="complete").weights - alone).max() <= 1e-12


def test_those_that_live_go_on_and_where_all_are_needed_they_do_not() -> None:
    faults = ("kind: crash, node: n4, at: 1 ms",)
    given: dict[str, Any] = {"faults": faults, "fails": True, "steps": 100, "compression": "int8"}
    ran = run("choco_sgd", 5, **given)
    assert [isinstance(result, BaseException) for result in ran.results] == [False] * 4 + [True]
    for settings in ({"overlay": "exponential"}, {"output": "mean"}):
        failed = run("choco_sgd", 5, **given, **settings).results[:4]
        assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in failed), settings


def test_the_copy_of_a_dead_rank_draws_nobody() -> None:
    # n4 dies over its first gradient; the gradients are noise that does not depend on the weights, so the
    # mean of the others goes where they would go alone.
    workload = noise(8, 5, 20, 0.1)
    topology = with_nodes(star(5), device=replace(INSTANT, work_overhead_s=5e-3))
    faults = ("kind: crash, node: n4, at: 2 ms",)
    ran = run("choco_sgd", topology, workload=workload, steps=20, compression="int8", faults=faults, fails=True)
    alone = []
    for rank in range(4):
        replica = workload.replica(rank, 5, SEED, 20)
        for batch in replica.batches():
            replica.apply(replica.loss_and_gradients(batch)[1])
        alone.append(replica.parameters[0].reshape(-1).numpy())
    assert np.abs(ran.weights[:4].mean(axis=0) - np.mean(alone, axis=0)).max() <= 1e-9


def test_a_graph_that_changes_has_no_copies_to_keep() -> None:
    with pytest.raises(UsageError, match="does not change"):
        run("choco_sgd", star(4), overlay="one_peer_exponential")


@pytest.mark.parametrize("settings", [{}, {"compression": TOP, "output": "mean", "consensus_every": 3}], ids=str)
def test_timing_only_takes_the_time_of_real_numerics(settings: dict[str, Any], tmp_path: Path) -> None:
    same_time_and_messages(*both({"name": "choco_sgd", **settings}, tmp_path))
