"""Claims about SPARTA, and its reference without messages."""

from __future__ import annotations

import numpy as np
import torch

from simcluster.rng import numpy_stream
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, ended, overwrite, vector, walk
from simcluster.workloads import Workload


def shared_at(step: int, length: int, seed: int, fraction: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which of *length* coordinates are averaged at *step*: a binomial number of them, all equally likely."""
    stream = numpy_stream(seed, "shared", "sparta", str(step))
    number = stream.binomial(length, fraction)
    mask = np.zeros(length, dtype=np.bool_)
    mask[stream.choice(length, number, replace=False)] = True
    return mask


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Replicas train in parallel; the coordinates of a common mask are averaged."""
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    for step in range(1, steps + 1):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], 1)
        all_weights = [vector(replica) for replica in replicas]
        mean = sum(all_weights[1:], all_weights[0]) / size
        mask = torch.from_numpy(shared_at(step, len(mean), seed, settings["fraction"]))
        for replica, weights in zip(replicas, all_weights, strict=True):
            overwrite(replica, torch.where(mask, mean, weights))
    return ended(replicas)


CLAIM = Claim(
    paper="Beton et al. 2025",
    reference=reference,
    reference_for=({"fraction": 0.5},),
    variants={"fraction": 0.5},
    identities=(
        Identity({"fraction": 1.0}, "local_sgd", {"interval": 1}, why="with p = 1 all is averaged every step"),
        Identity({"fraction": 1.0}, "one process", why="plain steps, averaged one by one"),
    ),
    outcomes=REFORMED,
)
