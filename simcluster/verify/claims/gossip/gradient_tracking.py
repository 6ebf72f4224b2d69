"""Claims about `gradient_tracking`: the loop over W, all x and all y, in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.overlays import overlay_of
from simcluster.verify.claim import Claim, Settings
from simcluster.verify.claims.gossip import d_psgd
from simcluster.verify.matrices import mean_of_all, times
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Sequence[Sequence[Tensor]]:
    """Y <- W Y + G - G_old, X <- W X - eta Y."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = [workload.replica(rank, size, seed, steps) for rank in range(size)]
    y = [[torch.zeros_like(tensor) for tensor in replica.parameters] for replica in replicas]
    old = y
    for number, batches in enumerate(zip(*(replica.batches() for replica in replicas), strict=True)):
        new = [replica.loss_and_gradients(batch)[1] for replica, batch in zip(replicas, batches, strict=True)]
        matrix = graph.matrix(number)
        y = [
            [mixed + now - before for mixed, now, before in zip(*three, strict=True)]
            for three in zip(times(matrix, y), new, old, strict=True)
        ]
        old = new
        x = times(matrix, [replica.parameters for replica in replicas])
        for replica, mixed, estimate in zip(replicas, x, y, strict=True):
            replica.load(mixed)
            replica.apply(estimate)
    models = [replica.parameters for replica in replicas]
    return mean_of_all(models) if settings["output"] == "mean" else models


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Weights and estimates: twice D-PSGD's traffic per round, and as much as D-PSGD whenever all take the mean."""
    rounds = d_psgd.payload_bytes(size, model_bytes, steps, {**settings, "consensus_every": 0, "output": "local"})
    return rounds + d_psgd.payload_bytes(size, model_bytes, steps, settings)


CLAIM = Claim(
    paper="Nedic, Olshevsky and Shi 2017 (SIAM J. Optim.), section 2",
    reference=reference,
    reference_for=[{"overlay": "one_peer_exponential"}, {"overlay": "star"}, {"output": "mean"}],
    variants={"overlay": "line", "consensus_every": 2, "output": "mean"},
    payload_bytes=payload_bytes,
    mixing=d_psgd.mixing,
    outcomes=d_psgd.GOES_ON,
)
