"""Claims about `all_reduce_dp`: the loop over ranks and batches, in one process."""

from __future__ import annotations

from collections import deque
from itertools import islice

from torch import Tensor

from simcluster.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, models_sent, rounds
from simcluster.workloads import Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """One model: the mean gradient of all ranks' batches, applied *staleness* steps late; no compression."""
    replicas = born(workload, size, seed, steps)
    alone, under_way = replicas[0], deque[list[Tensor]]()
    streams = [replica.batches() for replica in replicas]
    for _ in range(rounds(steps, settings["accumulate"])):
        of_ranks = [list(islice(stream, settings["accumulate"])) for stream in streams]
        gradients = [alone.loss_and_gradients(batch)[1] for batches in of_ranks for batch in batches]
        under_way.append([sum(parts[1:], start=parts[0]) / len(parts) for parts in zip(*gradients, strict=True)])
        if len(under_way) > settings["staleness"]:
            alone.apply(under_way.popleft())
    for late in under_way:
        alone.apply(late)
    return [alone.parameters] * size


def payload_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Models sent by all ranks together: in every all-reduce, and in the initial broadcast, if there is one."""
    first = size - 1 if settings["initial_weights"] == "broadcast" else 0
    return (rounds(steps, settings["accumulate"]) * models_sent(size, settings) + first) * model_bytes


ALL = {"kind": "top_k", "fraction": 1.0}

CLAIM = Claim(
    paper="Goyal et al. 2017, section 2; Li et al. 2020 (PyTorch Distributed), section 3.2",
    reference=reference,
    reference_for=(
        {"staleness": 2},
        {"accumulate": 3},
        {"bucket_bytes": 16},
        {"staleness": 1, "accumulate": 2, "bucket_bytes": 16, "schedule": "halving_doubling"},
        {"schedule": "recursive_doubling"},
        {"schedule": "binomial"},
        {"schedule": "direct", "initial_weights": "broadcast"},
        {"schedule": "naive", "compression": ALL},
    ),
    variants={
        "schedule": "direct",
        "initial_weights": "broadcast",
        "compression": "int8",
        "bucket_bytes": 16,
        "accumulate": 2,
        "staleness": Variant(2, uneven=True),
    },
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        Identity({}, "sync_ps", why="a server's mean is the ranks' mean"),
        Identity(
            {"schedule": "naive"},
            "all_reduce_dp",
            {"compression": ALL},
            exact=True,
            why="top-100 % = dense, to the bit",
        ),
        Identity(
            {"schedule": "naive"},
            "all_reduce_dp",
            {"schedule": "naive", "bucket_bytes": 16},
            exact=True,
            why="where sums are by rank, buckets and overlap change no bit",
        ),
    ),
    payload_bytes=payload_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)
