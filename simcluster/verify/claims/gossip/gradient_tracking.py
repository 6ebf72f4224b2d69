"""Claims about `gradient_tracking`: the loop over W, all x and all y, in one process."""

from __future__ import annotations

import torch

from simcluster.overlays import overlay_of
from simcluster.verify.claim import Claim, Settings, Weights
from simcluster.verify.claims.gossip import d_psgd
from simcluster.verify.faults import GOES_ON
from simcluster.verify.naive import born, gradients_of, output, times
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Y <- W Y + G - G_old, X <- W X - eta Y."""
    graph = overlay_of(settings["overlay"], size, seed)
    replicas = born(workload, size, seed, steps)
    y = [[torch.zeros_like(tensor) for tensor in replica.parameters] for replica in replicas]
    old = y
    for number, new in enumerate(gradients_of(replicas)):
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
    return output([replica.parameters for replica in replicas], settings)


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
    outcomes=GOES_ON,
)
