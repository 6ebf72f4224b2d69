"""A node whose gradients are looked at: their norms become metrics, and nothing else changes.

Whatever the node can do it can do here, in its own quicker ways, too; the norm is taken when the gradient is there,
which takes no virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from simcluster.runs.record import OBSERVED, Recorder
from simcluster.transport import Cost, Transport
from simcluster.workloads import Replica

T = TypeVar("T")

GRADIENT_NORM = f"{OBSERVED}gradient_norm"


class _Observed:
    """*node*, but for `compute`."""

    def __init__(self, node: Transport, replica: Replica, recorder: Recorder) -> None:
        self._node, self._work, self._recorder = node, replica.loss_and_gradients, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        result = await self._node.compute(work, *args, cost=cost, **kwargs)
        if work == self._work:
            batch, (_, gradients) = args[0], cast(tuple[float, list[Tensor]], result)
            self._recorder.metric_at(self._recorder.now(), batch.step + 1, GRADIENT_NORM, norm(gradients))
        return result


def observed(node: Transport, replica: Replica, recorder: Recorder) -> Transport:
    """*node*; the norm of each gradient of *replica* is noted as a metric, at its batch's number counted from 1."""
    return cast(Transport, _Observed(node, replica, recorder))


def norm(gradients: Sequence[Tensor]) -> float:
    """The Euclidean norm of all of them together."""
    squares = [torch.linalg.vector_norm(gradient, dtype=torch.float64).item() ** 2 for gradient in gradients]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
