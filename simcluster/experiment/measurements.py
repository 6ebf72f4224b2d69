"""Measurements of a node off the clock: held-out losses, copies of its weights, norms of its gradients."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from simcluster.experiment.keys import ObserveBlock
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
"""That of a parameter has a slash and its name after it."""

LEARNING_RATE = f"{OBSERVED}learning_rate"


class Observed:
    """*node*, recording what *wanted* says: the norms of each gradient of *replica* at its batch's number, counted
    from 1, and the learning rate of its last optimizer step at each recorded step.
    """

    def __init__(self, node: Transport, replica: Replica, recorder: Recorder, wanted: ObserveBlock) -> None:
        self._node, self._replica, self._recorder, self._wanted = node, replica, recorder, wanted
        self._work = replica.loss_and_gradients
        self._step: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        result = await self._node.compute(work, *args, cost=cost, **kwargs)
        if work == self._work and self._wanted.gradient_norms:
            batch, (_, gradients) = args[0], cast(tuple[float, list[Tensor]], result)
            each = norms(gradients)
            found = {GRADIENT_NORM: joint(each)}
            if self._wanted.gradient_norms == "layers":
                found |= {f"{GRADIENT_NORM}/{name}": one for name, one in zip(self._replica.names, each, strict=True)}
            time_s = self._recorder.now()
            for name, value in found.items():
                self._recorder.metric_at(time_s, batch.step + 1, name, value)
        return result

    def record(self, *, step: int, **metrics: float) -> None:
        self._node.record(step=step, **metrics)
        rate = self._replica.learning_rate
        if self._wanted.learning_rate and rate is not None and step != self._step:
            self._step = step
            self._recorder.metric_at(self._recorder.now(), step, LEARNING_RATE, rate)


def norms(gradients: Sequence[Tensor]) -> list[float]:
    """Return the Euclidean norm of each."""
    return [torch.linalg.vector_norm(gradient, dtype=torch.float64).item() for gradient in gradients]


def joint(each: Sequence[float]) -> float:
    """Return the Euclidean norm of all numbers together, from the norms of their parts."""
    squares = [one**2 for one in each]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
