"""PowerSGD across ranks: an all-reduce can average the factors, since they are linear in the
matrix.

Vogels, Karimireddy and Jaggi 2019, algorithm 1: P = mean of M_i Q, orthogonalised; Q = mean of M_i^T P; P Q^T
approximates the mean of all M_i. Each rank keeps the error of its M_i: M_i - P (M_i^T P)^T.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

from torch import Tensor

from simcluster.compression.codec import Codec
from simcluster.compression.compressor import VectorLayout
from simcluster.compression.power_sgd import PowerSgd, joined, orthogonal
from simcluster.rng import NodeRandom
from simcluster.transport import Cost, Transport
from simcluster.workloads.operator_costs import elementwise_cost


async def mean_of_factors(
    node: Transport, kind: PowerSgd, codec: Codec, tensors: Sequence[Tensor], tag: str,
    all_reduce: Callable[[Transport, Tensor, str], Awaitable[Tensor]],
) -> list[Tensor]:  # fmt: skip
    """Return the mean over ranks of *tensors*.

    The factors of matrices are averaged, and other tensors are averaged uncompressed.
    """
    step = _Step(kind, codec)
    costs = _costs(kind, codec.layout)
    left = await node.compute(step.project, tensors, cost=costs[0])
    left = (await all_reduce(node, left, f"{tag}/p")).div_(node.size)
    right = await node.compute(step.project_back, left, cost=costs[1])
    if len(right):  # empty if no matrix is larger than its factors
        right = (await all_reduce(node, right, f"{tag}/q")).div_(node.size)
    return await node.compute(step.multiply, right, cost=costs[2])


class _Step:
    """One step of PowerSGD: three computations with an all-reduce after each of the first two."""

    def __init__(self, kind: PowerSgd, codec: Codec) -> None:
        self._kind = kind
        self._codec = codec
        self.layout = codec.layout

    def project(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return M Q for every matrix, followed by the uncompressed tensors, as one vector."""
        vector, self._whole = self._codec.compensate(tensors)
        self._matrices, rest = self._kind.split(vector, self.layout)
        starts = self._kind.start(self.layout, self._codec.memory, vector)
        lefts = [m @ q for m, q in zip(self._matrices, starts, strict=True)]
        self._own_rest, self._lefts_length = rest, sum(left.numel() for left in lefts)
        return joined([*lefts, rest], vector)

    def project_back(self, mean: Tensor) -> Tensor:
        """Return M^T P for every matrix, with P orthogonalised, as one vector; keep this rank's
        error.
        """
        self._rest = mean[self._lefts_length :]
        self._lefts = [orthogonal(p) for p in self._kind.lefts(mean[: self._lefts_length], self.layout)]
        rights = [m.T @ p for m, p in zip(self._matrices, self._lefts, strict=True)]
        if self._whole is not None:
            sent = self._kind.join(self._lefts, rights, self._own_rest, self.layout)
            self._codec.keep(self._whole, sent)
        return joined(rights, mean)

    def multiply(self, mean: Tensor) -> list[Tensor]:
        """Return the mean tensors: P Q^T for every matrix, and the uncompressed tensors."""
        rights = self._kind.rights(mean, self.layout)
        self._kind.keep(rights, self._codec.memory)
        return self.layout.tensors(self._kind.join(self._lefts, rights, self._rest, self.layout))


@lru_cache(maxsize=4096)
def _costs(kind: PowerSgd, layout: VectorLayout) -> tuple[Cost, Cost, Cost]:
    """Return the costs of the three computations, counted on meta tensors.

    The first step also sets up state, so the second one is counted.
    """
    codec = Codec(kind, NodeRandom(0, ""), "", layout)
    _counted(_Step(kind, codec))
    return _counted(_Step(kind, codec))


def _counted(step: _Step) -> tuple[Cost, Cost, Cost]:
    sent: list[Tensor] = []
    left = elementwise_cost(lambda: sent.append(step.project(step.layout.empty())), "power_sgd/left")
    right = elementwise_cost(lambda: sent.append(step.project_back(sent[0])), "power_sgd/right")
    return left, right, elementwise_cost(lambda: step.multiply(sent[1]), "power_sgd/product")
