"""Claims about `sgp`: the loop over P, all x and all w, in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.verify.claim import Claim, Identity, Settings
from simcluster.verify.claims.gossip.d_psgd import GOES_ON, payload_bytes
from simcluster.verify.matrices import mean_of_all, times
from simcluster.workloads import Workload

LOPSIDED = {"kind": "edges", "edges": [[0, 1], [1, 2], [2, 0], [0, 2]], "directed": True}
"""Three ranks; rank 0 has more edges out than in."""


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Sequence[Sequence[Tensor]]:
    """X <- P (X - eta G(Z)), w <- P w, Z = X / w."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    x = [replica.snapshot() for replica in replicas]
    w = [[torch.ones(1, dtype=torch.float64)] for _ in replicas]
    for number, batches in enumerate(zip(*(replica.batches() for replica in replicas), strict=True)):
        for replica, biased, batch in zip(replicas, x, batches, strict=True):
            _, gradients = replica.loss_and_gradients(batch)
            replica.load(biased)
            replica.apply(gradients)
        matrix = graph.push_matrix(number)
        x, w = times(matrix, [replica.parameters for replica in replicas]), times(matrix, w)
        for replica, biased, (weight,) in zip(replicas, x, w, strict=True):
            replica.load([tensor / weight.item() for tensor in biased])
    return mean_of_all(x) if settings["output"] == "mean" else [replica.parameters for replica in replicas]


def mixing(size: int, number: int, settings: Settings) -> Matrix:
    return overlay_of(settings["overlay"], size, seed=0).push_matrix(number)


CLAIM = Claim(
    paper="Assran et al. 2019 (ICML), algorithm 1",
    reference=reference,
    reference_for=[{"overlay": LOPSIDED}, {"overlay": "star"}, {"output": "mean"}],
    variants={"overlay": "ring", "consensus_every": 2, "output": "mean"},
    identities=[
        Identity(
            {"overlay": "ring"},
            "d_psgd",
            {"overlay": "ring", "order": "step_then_mix"},
            why="with doubly stochastic W, push-sum is gossip",
        ),
        Identity({"overlay": "complete"}, "all_reduce_dp", why="every rank has an equal share of every other"),
    ],
    payload_bytes=payload_bytes,
    mixing=mixing,
    column_stochastic=True,
    outcomes=GOES_ON,
)
