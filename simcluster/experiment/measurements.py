"""Measurements of a node off the clock: held-out losses, copies of its weights, norms of its gradients."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from simcluster.runs.record import OBSERVED, Copy
from simcluster.runs.recorder import Recorder
from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.transport import Cost, Transport
from simcluster.workloads import Replica

_NAMES = {"loss": LOSS, "accuracy": ACCURACY}


class _Periodic:
    """Takes the weights at recorded steps: the first at or after each multiple of *every*."""

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        self._every, self._recorder = every, recorder
        self.go_on(replica)

    def go_on(self, replica: Replica) -> None:
        """Take the weights of *replica* from now on."""
        self._replica = replica
        self._next_step = (replica.done // self._every + 1) * self._every

    def note(self, step: int) -> None:
        """Take the weights if one is due at *step*, which the algorithm has recorded."""
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            self._take(step, self._replica.snapshot())

    def _take(self, step: int, weights: list[Tensor]) -> None:
        raise NotImplementedError


class Evaluations(_Periodic):
    """Weights kept during the run and evaluated at its end, with the time and step at which they were taken."""

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        super().__init__(every, replica, recorder)
        self._kept: list[tuple[float, int, list[Tensor]]] = []

    def _take(self, step: int, weights: list[Tensor]) -> None:
        self._kept.append((self._recorder.now(), step, weights))

    async def finish(self, finished_s: float) -> None:
        """Evaluate the kept and the final weights; let heartbeats through in between."""
        last_step = self._recorder.record.steps
        for time_s, step, weights in [*self._kept, (finished_s, last_step, self._replica.parameters)]:
            await asyncio.sleep(0)
            for name, value in self._replica.evaluate_weights(weights).items():
                self._recorder.metric_at(time_s, step, _NAMES[name], value)


class Copies(_Periodic):
    """The record's copies, for `evaluate_consensus: true`. A rank that lacks parts of the model records none."""

    def _take(self, step: int, weights: list[Tensor]) -> None:
        numbers = torch.cat([tensor.reshape(-1) for tensor in weights])
        exact = numbers.dtype in (torch.float32, torch.float64)
        vector = (numbers if exact else numbers.float()).numpy()
        copy = Copy(self._recorder.now(), step, vector.dtype.str, vector.nbytes, vector.tobytes())
        self._recorder.record.copies.append(copy)


T = TypeVar("T")

GRADIENT_NORM = f"{OBSERVED}gradient_norm"


class Observed:
    """*node*, recording the norm of each gradient of *replica* at its batch's number, counted from 1."""

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


def norm(gradients: Sequence[Tensor]) -> float:
    """Return their joint Euclidean norm."""
    squares = [torch.linalg.vector_norm(gradient, dtype=torch.float64).item() ** 2 for gradient in gradients]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
