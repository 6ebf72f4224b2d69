"""Claims about local SGD, and its reference without messages."""

from __future__ import annotations

import torch

from simcluster.rng import numpy_stream
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, ended, models_sent, overwrite, rounds, vector, walk
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """FedAvg as published: chosen ranks train from the common weights; their weighted mean is the next model."""
    replicas = born(workload, size, seed, steps)
    batches = [replica.batches() for replica in replicas]
    number, weighted = max(round(settings["participation"] * size), 1), settings["weighting"] == "samples"
    for first in range(0, steps, settings["interval"]):
        drawn = numpy_stream(seed, "shared", "local_sgd", str(first)).permutation(size)[:number]
        for rank, replica in enumerate(replicas):
            if rank in drawn:
                walk(replica, batches[rank], settings["interval"])
            else:
                for _ in zip(range(settings["interval"]), batches[rank], strict=False):
                    pass
        weights = torch.tensor([float(replicas[rank].shard_size) if weighted else 1.0 for rank in drawn]).double()
        reached = torch.stack([vector(replicas[rank]) for rank in drawn])
        mean = (weights / weights.sum()).to(reached.dtype) @ reached
        for replica in replicas:
            overwrite(replica, mean)
    return ended(replicas)


def _bytes(size: int, model: int, steps: int, settings: Settings) -> int:
    # The shard sizes of all n ranks, 8 bytes each, go around a ring once.
    sizes = 2 * (size - 1) * 8 * size if settings["weighting"] == "samples" else 0
    return rounds(steps, settings["interval"]) * models_sent(size, settings) * model + sizes


CLAIM = Claim(
    paper="Stich 2019, algorithm 1; McMahan et al. 2017, algorithm 1",
    settings={"interval": 3},
    reference=reference,
    reference_for=(
        {"participation": 0.5, "schedule": "binomial"},
        {"weighting": "samples"},
        {"participation": 0.4, "weighting": "samples"},
    ),
    variants={"interval": 2, "participation": 0.4, "weighting": "samples", "schedule": "direct", "compression": "int8"},
    identities=(
        Identity({"interval": 1}, "one process", why="the mean of one plain step each is a step along the mean"),
        Identity(
            {},
            "diloco",
            {"interval": 3, "outer_learning_rate": 1.0, "outer_momentum": 0.0},
            why="DiLoCo with plain outer SGD",
        ),
        Identity({"interval": 1}, "sparta", {"fraction": 1.0}, why="averaging every step"),
        Identity({}, "local_sgd", {"compression": {"kind": "top_k", "fraction": 1.0}}, why="top-100 % = dense"),
    ),
    payload_bytes=_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)
