"""Claims about DiLoCo, and its reference without messages."""

from __future__ import annotations

import torch

from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, descend, ended, models_sent, outer_sgd, overwrite, rounds, vector, walk
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Replicas train from theta; torch's own Nesterov moves theta along the mean of their changes."""
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    theta, outer = outer_sgd(vector(replicas[0]), settings["outer_learning_rate"], settings["outer_momentum"])
    for _ in range(0, steps, settings["interval"]):
        for rank, replica in enumerate(replicas):
            walk(replica, batches[rank], settings["interval"])
        moved = torch.stack([theta.detach() - vector(replica) for replica in replicas])
        descend(theta, outer, moved.mean(0))
        for replica in replicas:
            overwrite(replica, theta.detach())
    return ended(replicas)


def _bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    return models_sent(size, settings) * rounds(steps, settings["interval"]) * model


CLAIM = Claim(
    paper="Douillard et al. 2023, algorithm 1",
    settings={"interval": 3},
    reference=reference,
    reference_for=({"interval": 1}, {"outer_momentum": 0.0}, {"schedule": "halving_doubling"}),
    variants={
        "interval": 2,
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "schedule": "direct",
        "compression": "int8",
    },
    identities=(
        Identity(
            {"outer_learning_rate": 1.0, "outer_momentum": 0.0},
            "local_sgd",
            {"interval": 3},
            why="plain outer SGD of rate 1 takes the mean",
        ),
        Identity(
            {"interval": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0},
            "one process",
            why="plain steps, averaged one by one",
        ),
        Identity({}, "diloco", {"compression": {"kind": "top_k", "fraction": 1.0}}, why="top-100 % = dense"),
    ),
    payload_bytes=_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)
