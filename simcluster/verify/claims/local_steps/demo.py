"""Claims about DeMo, and its reference without messages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.verify.claim import Claim, Identity, Settings, Weights
from simcluster.verify.faults import REFORMED
from simcluster.verify.naive import born, ended, gradients_of
from simcluster.workloads import Workload


def waves(size: int) -> list[Tensor]:
    """Return the orthonormal DCT-II basis, cosine by cosine."""
    basis = []
    for frequency in range(size):
        wave = [math.cos(math.pi * frequency * (2 * place + 1) / (2 * size)) for place in range(size)]
        length = math.sqrt(sum(value * value for value in wave))
        basis.append(torch.tensor([value / length for value in wave], dtype=torch.float64))
    return basis


def fast_components(m: Tensor, basis: Sequence[Tensor], k: int) -> Tensor:
    """Return the part of *m* formed by the *k* largest coefficients of each chunk."""
    fast = []
    for chunk in torch.split(m.double(), len(basis)):
        whole = torch.cat([chunk, chunk.new_zeros(len(basis) - len(chunk))])
        coefficients = [float(whole @ wave) for wave in basis]
        largest = sorted(range(len(basis)), key=lambda index: -abs(coefficients[index]))[:k]
        kept = sum((coefficients[index] * basis[index] for index in largest), torch.zeros_like(whole))
        fast.append(kept[: len(chunk)])
    return torch.cat(fast).to(m.dtype)


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """Every rank removes the fast components from its momentum, and all step along their mean or its signs."""
    replicas = born(workload, size, seed, steps)
    basis = waves(settings["chunk"])
    momenta: list[Tensor | None] = [None] * size
    for gradients in gradients_of(replicas):
        shared = []
        for rank, before in enumerate(momenta):
            gradient = flatten(gradients[rank])
            m = gradient if before is None else settings["momentum"] * before + gradient
            shared.append(fast_components(m, basis, settings["top_k"]))
            momenta[rank] = m - shared[-1]
        Q = sum(shared[1:], shared[0]) / size
        direction = Q.sign() if settings["update"] == "sign" else Q
        for replica in replicas:
            replica.apply(unflatten(direction, replica.parameters))
    return ended(replicas)


CLAIM = Claim(
    paper="Peng, Quesnelle and Kingma 2024, algorithm 1",
    reference=reference,
    reference_for=({"update": "mean"}, {"chunk": 16, "top_k": 2}),
    variants={"momentum": 0.5, "chunk": 16, "top_k": 2, "update": "mean"},
    identities=(
        Identity({"top_k": 64, "update": "mean"}, "one process", why="with k = s momentum keeps nothing back"),
    ),
    replicas_agree=True,
    outcomes=REFORMED,
)
