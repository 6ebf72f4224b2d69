"""Claims about `one_bit_adam`: both of its phases over all ranks' gradients, in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.naive import born, vector
from simcluster.workloads import Replica, Workload


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Adam on the mean gradient; then on momenta that are sent as signs, to and from the owner of each chunk."""
    replicas = born(workload, size, seed, steps)
    alone = replicas[0]
    like = vector(alone)
    m, v = torch.zeros_like(like), torch.zeros_like(like)
    pieces = _pieces(alone, size)
    residuals = [torch.zeros_like(like).double() for _ in range(size + 1)]  # of each rank, and of the owners
    beta1, beta2, warmup = settings["beta1"], settings["beta2"], settings["warmup"]
    for step, batches in enumerate(zip(*(replica.batches() for replica in replicas), strict=True), start=1):
        gradients = [flatten(alone.loss_and_gradients(batch)[1]) for batch in batches]
        if step <= warmup:
            mean = sum(gradients[1:], start=gradients[0]) / size
            v = v * beta2 + mean.square() * (1 - beta2)
            m = m * beta1 + mean * (1 - beta1)
        else:
            momenta = [m * beta1 + gradient * (1 - beta1) for gradient in gradients]
            if size > 1:
                momenta = [_signs(own, pieces, residual) for own, residual in zip(momenta, residuals[:-1], strict=True)]
            m = sum(momenta[1:], start=momenta[0]) / size
            m = _signs(m, pieces, residuals[-1]) if size > 1 else m
        root = (v / (1 - beta2 ** min(step, warmup))).sqrt() + settings["epsilon"]
        step_of_each = torch.where(v > 0, m / (1 - beta1**step) / root, torch.zeros_like(m))
        alone.apply(unflatten(step_of_each, alone.parameters))
    return [alone.parameters] * size


def _pieces(replica: Replica, size: int) -> list[int]:
    """Return the lengths of the pieces with separate scales: each tensor's part in one rank's chunk."""
    owners = torch.cat(
        [torch.full((parameter.numel(),), number) for number, parameter in enumerate(replica.parameters)]
    )
    chunks = torch.cat([torch.full_like(chunk, number) for number, chunk in enumerate(owners.tensor_split(size))])
    lengths: list[int] = torch.unique_consecutive(owners * size + chunks, return_counts=True)[1].tolist()
    return lengths


def _signs(given: Tensor, pieces: Sequence[int], residual: Tensor) -> Tensor:
    """Return the sign of each number times its piece's mean magnitude; *residual* is added first and then updated."""
    whole = given.double() + residual
    parts = torch.split(whole.to(given.dtype), list(pieces))
    sent = torch.cat([torch.where(part >= 0, 1.0, -1.0).to(part.dtype) * part.abs().mean() for part in parts])
    residual.copy_(whole - sent)
    return sent


CLAIM = Claim(
    paper="Tang et al. 2021 (ICML), algorithm 1 and section 4.2",
    settings={"warmup": 3},
    reference=reference,
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
