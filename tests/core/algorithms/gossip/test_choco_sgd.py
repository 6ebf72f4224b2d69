"""CHOCO-SGD: the mean kept by any compressor. Consensus is in experiments/papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcluster.compression import KINDS
from simcluster.errors import UsageError
from tests.core.algorithms.gossip.runs import INSTANT, SEED, noise, run
from tests.support.clusters import star, with_nodes


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_the_compressor_the_mean_is_kept(kind: str) -> None:
    # The gradients are noise that does not depend on the weights, so the mean's way is that of a mean of noise.
    steps, eta = 15, 0.1
    workload = noise(64, 5, steps, eta)
    ran = run("choco_sgd", 5, workload=workload, steps=steps, compression=kind, gamma=0.2)
    free = run("d_psgd", 5, workload=workload, steps=steps, overlay="complete")
    assert np.abs(ran.weights.mean(axis=0) - free.weights.mean(axis=0)).max() <= 1e-9


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
