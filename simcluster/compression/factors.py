"""PowerSGD among ranks: the factors of the mean matrix, by all-reduce, since they are linear in the matrix.

Vogels, Karimireddy and Jaggi 2019, algorithm 1: P = mean of M_i Q, orthogonalised; Q = mean of M_i^T P; P Q^T
approximates the mean of all M_i. Each rank keeps the error of its M_i: M_i - P (M_i^T P)^T.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from simcluster.compression.codec import Codec
from simcluster.compression.layout import Layout
from simcluster.compression.power_sgd import PowerSgd, joined, orthogonal
from simcluster.rng import NodeRandom
from simcluster.transport import Cost, Transport
from simcluster.workloads.costs.costs import elementwise_cost


async def mean_of_factors(
    node: Transport,
    kind: PowerSgd,
    codec: Codec,
    tensors: Sequence[Tensor],
    tag: str,
    all_reduce: Callable[[Transport, Tensor, str], Awaitable[Tensor]],
) -> list[Tensor]:
    """Return the mean over ranks of *tensors*: matrices by their factors, the rest uncompressed."""
    step = _Step(kind, codec)
    costs = _costs(kind, codec.layout)
    left = await node.compute(step.project, tensors, cost=costs[0])
    left = (await all_reduce(node, left, f"{tag}/p")).div_(node.size)
    right = await node.compute(step.project_back, left, cost=costs[1])
    if len(right):  # otherwise no matrix becomes smaller
        right = (await all_reduce(node, right, f"{tag}/q")).div_(node.size)
    return await node.compute(step.multiply, right, cost=costs[2])


class _Step:
    """The work of one step, in three pieces with communication between them."""

    def __init__(self, kind: PowerSgd, codec: Codec) -> None:
        self._kind, self._codec, self._layout = kind, codec, codec.layout

    def project(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return every M Q, followed by the rest."""
        vector, self._whole = self._codec.compensate(tensors)
        self._matrices, rest = self._kind.split(vector, self._layout)
        starts = self._kind.start(self._layout, self._codec.memory, vector)
        lefts = [m @ q for m, q in zip(self._matrices, starts, strict=True)]
        self._own_rest, self._lefts_length = rest, sum(left.numel() for left in lefts)
        return joined([*lefts, rest], vector)

    def project_back(self, mean: Tensor) -> Tensor:
        """Return every M^T P, with P orthogonalised; keep this rank's error."""
        self._rest = mean[self._lefts_length :]
        self._lefts = [orthogonal(p) for p in self._kind.lefts(mean[: self._lefts_length], self._layout)]
        rights = [m.T @ p for m, p in zip(self._matrices, self._lefts, strict=True)]
        if self._whole is not None:
            sent = self._kind.join(self._lefts, rights, self._own_rest, self._layout)
            self._codec.keep(self._whole, sent)
        return joined(rights, mean)

    def multiply(self, mean: Tensor) -> list[Tensor]:
        """Return every P Q^T, and the rest."""
        rights = self._kind.rights(mean, self._layout)
        self._kind.keep(rights, self._codec.memory)
        return self._layout.tensors(self._kind.join(self._lefts, rights, self._rest, self._layout))


@lru_cache(maxsize=4096)
def _costs(kind: PowerSgd, layout: Layout) -> tuple[Cost, Cost, Cost]:
    """Return the costs of the three pieces, counted on meta tensors in a second step; later ones cost the same."""
    codec = Codec(kind, NodeRandom(0, ""), "", layout)
    tensors = [torch.empty(shape, dtype=layout.dtype, device="meta") for shape in layout.shapes]
    found: list[Cost] = []
    for _ in range(2):
        step = _Step(kind, codec)
        results: list[Tensor] = []
        found = [elementwise_cost(lambda s=step, r=results: r.append(s.project(tensors)), "power_sgd/left")]  # type: ignore[misc]
        found += [elementwise_cost(lambda s=step, r=results: r.append(s.project_back(r[0])), "power_sgd/right")]  # type: ignore[misc]
        found += [elementwise_cost(lambda s=step, r=results: s.multiply(r[1]), "power_sgd/product")]  # type: ignore[misc]
    return found[0], found[1], found[2]
