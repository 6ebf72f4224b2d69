"""Measurements of a node off the clock: held-out losses, copies of its weights, norms of its gradients."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from simcluster.compute import to_host
from simcluster.experiment.read.keys import ObserveBlock
from simcluster.process.generators import RANKS
from simcluster.runs.record import OBSERVED, Copy
from simcluster.runs.recorder import Recorder
from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.transport import Cost, Transport
from simcluster.workloads import Replica

_NAMES = {"loss": LOSS, "accuracy": ACCURACY}

FAR = 0.05
"""The difference of two accuracies from which on running statistics do not fit the weights."""

SNAPSHOTS = 2
"""The weights of this many evaluations may be held at a time: one is evaluated, one waits."""

log = logging.getLogger("simcluster")


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
            self._take(step)

    def _take(self, step: int) -> None:
        raise NotImplementedError


class Evaluations(_Periodic):
    """Held-out losses of the weights at recorded steps and at the end, each with its time and step.

    Where the recorder works `alongside` the algorithm, copies of the weights are evaluated there; if SNAPSHOTS of them
    are held, the algorithm waits for the oldest. Elsewhere weights are evaluated at once. The record gets all results
    at the end; views get each as it is known.
    """

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        super().__init__(every, replica, recorder)
        self._taken = 0
        self._pending: deque[Future[None]] = deque()
        self._error: Exception | SystemExit | None = None
        self._values: dict[str, float] = {}  # of the last evaluation
        self._last: object = None  # the fingerprint of what is evaluated last, if that is at the last step

    def _take(self, step: int) -> None:
        time_s, replica = self._recorder.now(), self._replica
        self._taken += 1
        self._last = replica.fingerprint() if step >= replica.steps else None
        if self._error is not None:
            return
        # A draw alongside would be from the generators that the algorithm draws from.
        if self._recorder.alongside is None or (RANKS.live and replica.draws_when_judged):
            self._evaluate(time_s, step, replica.evaluate)
            return
        if len(self._pending) == SNAPSHOTS:
            self._pending.popleft().result()
        self._pending.append(self._recorder.alongside(partial(self._evaluate, time_s, step, replica.evaluation())))

    def _evaluate(self, time_s: float, step: int, work: Callable[[], dict[str, float]]) -> None:
        """Note the result of *work*. The first error is raised at the end of the run, and evaluation stops there."""
        if self._error is not None:  # of the evaluation before
            return
        try:
            self._values = values = work()
        except (Exception, SystemExit) as error:
            self._error = error
            log.warning("the evaluation at step %d failed, and with it the run at its end: %r", step, error)
        else:
            self._recorder.evaluated(time_s, step, {_NAMES[name]: value for name, value in values.items()})

    async def finish(self, finished_s: float) -> None:
        """Wait for what is pending, and evaluate the final weights, unless they are those of the last evaluation; let
        heartbeats through in between.
        """
        for _ in range(self._taken):
            await asyncio.sleep(0)
            if self._pending:
                self._pending.popleft().result()
        await asyncio.sleep(0)
        is_known = self._last is not None and self._last == self._replica.fingerprint()
        work = partial(dict, self._values) if is_known else self._replica.evaluate
        self._evaluate(finished_s, self._recorder.record.steps, work)
        self.keep()
        if self._error is not None:
            raise self._error

    def check_statistics(self) -> str:
        """Return how far the last evaluation is from one that needs no running statistics; empty if not far."""
        by_batch = self._replica.evaluate_by_batch() if self._values else {}
        name = "accuracy" if "accuracy" in by_batch else "loss"
        if name not in by_batch:
            return ""
        own, other = self._values[name], by_batch[name]
        is_far = own < other - FAR if name == "accuracy" else own > 2 * other
        return f"held-out {name} {own:.3g}, and {other:.3g}" if is_far else ""

    def keep(self) -> None:
        """Record the results known by now."""
        self._recorder.record.metrics += self._recorder.evaluations


class Copies(_Periodic):
    """The record's copies, for `evaluate_consensus: true`. A rank that lacks parts of the model records none."""

    def _take(self, step: int) -> None:
        numbers = torch.cat([tensor.reshape(-1) for tensor in self._replica.parameters])
        exact = numbers.dtype in (torch.float32, torch.float64)
        vector = to_host(numbers if exact else numbers.float()).numpy()
        copy = Copy(self._recorder.now(), step, vector.dtype.str, vector.nbytes, vector.tobytes())
        self._recorder.record.copies.append(copy)


T = TypeVar("T")

GRADIENT_NORM = f"{OBSERVED}gradient_norm"
"""That of a parameter has a slash and its name after it."""

LEARNING_RATE = f"{OBSERVED}learning_rate"


class ObservedTransport:
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
    if gradients[0].device.type == "mps":  # has no float64
        gradients = [gradient.cpu() for gradient in gradients]
    found: list[float] = torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients]).tolist()
    return found


def joint(each: Sequence[float]) -> float:
    """Return the Euclidean norm of all numbers together, from the norms of their parts."""
    squares = [one**2 for one in each]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
