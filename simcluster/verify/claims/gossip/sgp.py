"""Claims about `sgp`: the loop over P, all x and all w, in one process."""

from __future__ import annotations

import torch

from simcluster.overlays import overlay_of
from simcluster.overlays.overlay import Matrix
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.claims.gossip.d_psgd import payload_bytes
from simcluster.verify.faults import GOES_ON
from simcluster.verify.naive import born, gradients_of, output, times
from simcluster.workloads import Workload

LOPSIDED = {"kind": "edges", "edges": [[0, 1], [1, 2], [2, 0], [0, 2]], "directed": True}
"""Three ranks; rank 0 has more edges out than in."""


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """X <- P (X - eta G(Z)), w <- P w, Z = X / w."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = born(workload, size, seed, steps)
    x = [replica.snapshot() for replica in replicas]
    w = [[torch.ones(1, dtype=torch.float64)] for _ in replicas]
    for number, all_gradients in enumerate(gradients_of(replicas)):
        for replica, biased, gradients in zip(replicas, x, all_gradients, strict=True):
            replica.load(biased)
            replica.apply(gradients)
        matrix = graph.push_matrix(number)
        x, w = times(matrix, [replica.parameters for replica in replicas]), times(matrix, w)
        for replica, biased, (weight,) in zip(replicas, x, w, strict=True):
            replica.load([tensor / weight.item() for tensor in biased])
    return output(x if settings["output"] == "mean" else [replica.parameters for replica in replicas], settings)


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
