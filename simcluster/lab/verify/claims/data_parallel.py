"""Claims about data-parallel algorithms; references loop over ranks and batches in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.lab.verify.claim import Claim, Identity, Settings, Variant, Weights
from simcluster.lab.verify.faults import REFORMED, TOGETHER
from simcluster.lab.verify.naive import BY_PLACE, born, mean, models_sent, rounds, vector
from simcluster.lab.verify.verdict import NotClaimed
from simcluster.workloads import Replica, Workload


def all_reduce_dp(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of a model that applies all ranks' mean gradients *staleness* steps late.

    Nothing is compressed.
    """
    replicas = born(workload, size, seed, steps)
    alone = replicas[0]
    under_way = deque[list[Tensor]]()
    streams = [replica.batches() for replica in replicas]
    for _ in range(rounds(steps, settings["accumulate"])):
        of_ranks = [list(islice(stream, settings["accumulate"])) for stream in streams]
        gradients = [alone.loss_and_gradients(batch)[1] for batches in of_ranks for batch in batches]
        under_way.append([mean(parts) for parts in zip(*gradients, strict=True)])
        if len(under_way) > settings["staleness"]:
            alone.apply(under_way.popleft())
    for late in under_way:
        alone.apply(late)
    return [alone.parameters] * size


def all_reduce_dp_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send: all all-reduces, and the initial broadcast if any."""
    first = size - 1 if settings["initial_weights"] == "broadcast" else 0
    return (rounds(steps, settings["accumulate"]) * models_sent(size, settings) + first) * model_bytes


ALL = {"kind": "top_k", "fraction": 1.0}

ALL_REDUCE_DP = Claim(
    paper="Goyal et al. 2017, section 2; Li et al. 2020 (PyTorch Distributed), section 3.2",
    reference=all_reduce_dp,
    reference_for=(
        {"staleness": 2},
        {"accumulate": 3},
        {"bucket_bytes": 16},
        {"staleness": 1, "accumulate": 2, "bucket_bytes": 16, "schedule": "halving_doubling"},
        {"schedule": "recursive_doubling"},
        {"schedule": "binomial"},
        {"schedule": "hierarchical"},
        {"schedule": "direct", "initial_weights": "broadcast"},
        {"schedule": "naive", "compression": ALL},
    ),
    variants={
        "schedule": "direct",
        **BY_PLACE,
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
    payload_bytes=all_reduce_dp_bytes,
    replicas_agree=True,
    outcomes=REFORMED,
)


def zero(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of plain data parallelism, in which nothing is sharded."""
    return all_reduce_dp(workload, size, seed, steps, {**settings, "accumulate": 1})


def zero_bytes(size: int, model_bytes: int, steps: int, settings: Settings) -> int:
    """Return the bytes that all ranks send.

    Each of N_d ranks sends (N_d - 1)/N_d models in every reduce-scatter and every all-gather. In
    each step, stages 0 to 2 have one of each, and stage 3 has a second all-gather. The first
    forward pass needs none, since all ranks have drawn the same weights; instead, the whole model
    is gathered at the end. It is also gathered before each evaluation.
    """
    if settings["reduce"] not in ("ring", "direct") or settings["gather"] not in ("ring", "broadcast"):
        raise NotClaimed("no formula for these schedules; there is one for ring, direct and broadcast")
    times = steps * (3 if settings["stage"] == 3 else 2)
    interval = settings["gather_interval"]
    if settings["stage"] == 3 and interval is not None:
        times += (steps - 1) // interval
    return times * (size - 1) * model_bytes


ZERO = Claim(
    paper="Rajbhandari et al. 2020, section 5",
    reference=zero,
    reference_for=(
        {"stage": 0},
        {"stage": 2},
        {"stage": 3},
        {"stage": 3, "reduce": "direct", "gather": "broadcast", "prefetch": 0},
        {"stage": 2, "staleness": 2},
        {"stage": 3, "staleness": 1},
    ),
    variants={
        "stage": 3,
        "reduce": "direct",
        "gather": "broadcast",
        "prefetch": Variant(0, given={"stage": 3}),
        "staleness": 1,
        "gather_interval": Variant(1, given={"stage": 3}),
        "compression": "int8",
    },
    identities=(
        Identity({}, "one process", why="the mean of the ranks' gradients is the gradient of the joined batch"),
        *(
            Identity({"stage": 0}, "zero", {"stage": stage}, exact=True, why=f"ZeRO 0 = {stage}, to the bit")
            for stage in (1, 2, 3)
        ),
        Identity({"reduce": "direct"}, "zero", {"compression": ALL}, exact=True, why="top-100 % = dense, to the bit"),
        Identity(
            {"stage": 3, "reduce": "direct"},
            "all_reduce_dp",
            {"schedule": "naive"},
            why="parted or not, sums by rank are sums by rank",
        ),
        Identity({"staleness": 2}, "all_reduce_dp", {"staleness": 2}, why="late by as many steps is late by as many"),
    ),
    payload_bytes=zero_bytes,
    replicas_agree=True,
    outcomes={name: end for name, end in TOGETHER.items() if "server" not in name and "," not in name},
)


def one_bit_adam(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Return the weights of Adam on the mean gradient.

    After the warm-up, the second moment is fixed, and the ranks' momenta are reduced to signs.
    """
    replicas = born(workload, size, seed, steps)
    alone = replicas[0]
    like = vector(alone)
    m, v = torch.zeros_like(like), torch.zeros_like(like)
    pieces = _pieces(alone, size)
    # rank -> the error that its signs have left so far; the last entry is for the owners of chunks
    residuals = [torch.zeros_like(like).double() for _ in range(size + 1)]
    beta1 = settings["beta1"]
    beta2 = settings["beta2"]
    warmup = settings["warmup"]
    for step, batches in enumerate(zip(*(replica.batches() for replica in replicas), strict=True), start=1):
        gradients = [flatten(alone.loss_and_gradients(batch)[1]) for batch in batches]
        if step <= warmup:
            gradient = mean(gradients)
            v = v * beta2 + gradient.square() * (1 - beta2)
            m = m * beta1 + gradient * (1 - beta1)
        else:
            momenta = [m * beta1 + gradient * (1 - beta1) for gradient in gradients]
            if size > 1:
                momenta = [_signs(own, pieces, residual) for own, residual in zip(momenta, residuals[:-1], strict=True)]
            m = mean(momenta)
            m = _signs(m, pieces, residuals[-1]) if size > 1 else m
        root = (v / (1 - beta2 ** min(step, warmup))).sqrt() + settings["epsilon"]
        step_of_each = torch.where(v > 0, m / (1 - beta1**step) / root, torch.zeros_like(m))
        alone.apply(unflatten(step_of_each, alone.parameters))
    return [alone.parameters] * size


def _pieces(replica: Replica, size: int) -> list[int]:
    """Return the lengths of the pieces that have a scale each.

    A piece is the part of one tensor in one rank's chunk.
    """
    owners = torch.cat(
        [torch.full((parameter.numel(),), number) for number, parameter in enumerate(replica.parameters)]
    )
    chunks = torch.cat([torch.full_like(chunk, number) for number, chunk in enumerate(owners.tensor_split(size))])
    lengths: list[int] = torch.unique_consecutive(owners * size + chunks, return_counts=True)[1].tolist()
    return lengths


def _signs(given: Tensor, pieces: Sequence[int], residual: Tensor) -> Tensor:
    """Return the sign of each number times its piece's mean magnitude, with error feedback.

    *residual* is the error so far: it is added to the numbers, and then updated.
    """
    whole = given.double() + residual
    parts = torch.split(whole.to(given.dtype), list(pieces))
    sent = torch.cat([torch.where(part >= 0, 1.0, -1.0).to(part.dtype) * part.abs().mean() for part in parts])
    residual.copy_(whole - sent)
    return sent


ONE_BIT_ADAM = Claim(
    paper="Tang et al. 2021 (ICML), algorithm 1 and section 4.2",
    settings={"warmup": 3},
    reference=one_bit_adam,
    reference_for=({"warmup": 100}, {"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-4}, {"schedule": "direct"}),
    variants={"warmup": 5, "beta1": 0.5, "beta2": 0.9, "epsilon": 0.1, "schedule": "direct"},
    identities=(
        Identity(
            {}, "one_bit_adam", {"schedule": "halving_doubling"}, why="only the warm-up's sums have another order"
        ),
    ),
    replicas_agree=True,
    outcomes={"crash of a worker": "fails", "short hang": "ends well", "long hang of a worker": "fails"},
)
