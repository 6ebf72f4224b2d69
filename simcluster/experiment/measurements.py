"""Measurements of a node, off the clock: held-out losses, copies of weights, norms of gradients."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from simcluster.compute import to_host
from simcluster.experiment.read.keys import ObserveBlock
from simcluster.process.generators import RANKS
from simcluster.runs.record import OBSERVED, Copy
from simcluster.runs.recorder import Recorder
from simcluster.runs.summary import ACCURACY, LOSS, PERPLEXITY
from simcluster.transport import Cost, Transport
from simcluster.workloads import Replica

_NAMES = {"loss": LOSS, "accuracy": ACCURACY, "perplexity": PERPLEXITY}

MOST_LOSS = 690.0
"""The largest loss with a perplexity that is finite here: a summary holds numbers up to 1e300."""

FAR = 0.05
"""The largest gain in accuracy from batch statistics at which running statistics fit the weights.

If evaluation by the statistics of each batch gains more, the running statistics are reported.
"""

SNAPSHOTS = 2
"""Limit on the copies of weights for pending evaluations: one is evaluated, and one waits."""

log = logging.getLogger("simcluster")


class _Periodic:
    """A measurement at the first recorded step at or after each multiple of *every*."""

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        self._every = every
        self._recorder = recorder
        self.go_on(replica)

    def go_on(self, replica: Replica) -> None:
        """Measure the weights of *replica* from now on."""
        self._replica = replica
        self._next_step = (replica.done // self._every + 1) * self._every

    def note(self, step: int) -> None:
        """Take a measurement if one is due at *step*, which the algorithm has just recorded."""
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            self._take(step)

    def _take(self, step: int) -> None:
        """Measure the weights of *step*."""
        raise NotImplementedError


class Evaluations(_Periodic):
    """Evaluations of the weights on held-out samples, at recorded steps and at the end.

    If the recorder can work `alongside` the algorithm, it evaluates copies of the weights in
    another thread; when SNAPSHOTS copies exist, the algorithm waits for the oldest. Otherwise
    weights are evaluated at once. The record gets all results at the end, and views get each result
    when it is known. *per_token*: whether the loss is that of a language model, which also has a
    perplexity.
    """

    def __init__(self, every: int, replica: Replica, recorder: Recorder, *, per_token: bool = False) -> None:
        super().__init__(every, replica, recorder)
        self._per_token = per_token
        self._taken = 0
        self._pending: deque[Future[None]] = deque()
        self._error: Exception | SystemExit | None = None
        self._values: dict[str, float] = {}  # the results of the last evaluation
        self._last: object = None  # the fingerprint of the weights evaluated at the last step, if any

    def _take(self, step: int) -> None:
        time_s = self._recorder.now()
        replica = self._replica
        self._taken += 1
        self._last = replica.fingerprint() if step >= replica.steps else None
        if self._error is not None:
            return
        # In another thread, an evaluation that draws random numbers would disturb the algorithm's
        # generators.
        if self._recorder.alongside is None or (RANKS.live and replica.draws_when_judged):
            self._evaluate(time_s, step, replica.evaluate)
            return
        if len(self._pending) == SNAPSHOTS:
            self._pending.popleft().result()
        self._pending.append(self._recorder.alongside(partial(self._evaluate, time_s, step, replica.evaluation())))

    def _evaluate(self, time_s: float, step: int, work: Callable[[], dict[str, float]]) -> None:
        """Evaluate by calling *work*, and record the result.

        Keep the first error for the end of the run, and make no more evaluations after it.
        """
        if self._error is not None:  # an earlier evaluation failed
            return
        try:
            self._values = values = work()
            if self._per_token and "loss" in values:
                values["perplexity"] = perplexity(values["loss"])
        except (Exception, SystemExit) as error:
            self._error = error
            log.warning("the evaluation at step %d failed, and with it the run at its end: %r", step, error)
        else:
            self._recorder.evaluated(time_s, step, {_NAMES[name]: value for name, value in values.items()})

    def losses(self, after: int) -> list[float]:
        """Wait for pending evaluations, and return the held-out losses of the steps after *after*.

        A step that was made again, in another group, counts once.
        """
        while self._pending:
            self._pending.popleft().result()
        newest = list(takewhile(lambda row: row.step > after, reversed(self._recorder.evaluations)))
        return list({row.step: row.value for row in reversed(newest) if row.name == LOSS}.values())

    async def finish(self, finished_s: float) -> None:
        """Wait for pending evaluations, then evaluate the final weights unless that has been done.

        In between, the event loop can send heartbeats. Raise the first error of any evaluation.
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
        """Describe how evaluations by running and by batch statistics differ; "" if they barely do."""
        by_batch = self._replica.evaluate_by_batch() if self._values else {}
        name = "accuracy" if "accuracy" in by_batch else "loss"
        if name not in by_batch:
            return ""
        own, other = self._values[name], by_batch[name]
        is_far = own < other - FAR if name == "accuracy" else own > 2 * other
        return f"held-out {name} {own:.3g}, and {other:.3g}" if is_far else ""

    def keep(self) -> None:
        """Add the results so far to the record."""
        self._recorder.record.metrics += self._recorder.evaluations


def perplexity(loss: float) -> float:
    """Return e to the power of *loss*, which is in nats per token; infinity if it is too large."""
    return math.inf if loss > MOST_LOSS else math.exp(loss)


class Copies(_Periodic):
    """Copies of the weights for the record, if `evaluate_consensus: true`."""

    def _take(self, step: int) -> None:
        numbers = torch.cat([tensor.reshape(-1) for tensor in self._replica.parameters])
        # numpy has no bfloat16, so all short types become float32, which holds their values
        # exactly.
        exact = numbers.dtype in (torch.float32, torch.float64)
        vector = to_host(numbers if exact else numbers.float()).numpy()
        copy = Copy(self._recorder.now(), step, vector.dtype.str, vector.nbytes, vector.tobytes())
        self._recorder.record.copies.append(copy)


T = TypeVar("T")

GRADIENT_NORM = f"{OBSERVED}gradient_norm"
"""The metric with the norm of a gradient; for one parameter, a slash and its name follow."""

LEARNING_RATE = f"{OBSERVED}learning_rate"


class ObservedTransport:
    """A wrapper of the transport *node* that records the metrics in *wanted*.

    These are the norms of each gradient of *replica*, at the number of its batch, counted from 1;
    and the learning rate of the last optimizer step, at each recorded step.
    """

    def __init__(self, node: Transport, replica: Replica, recorder: Recorder, wanted: ObserveBlock) -> None:
        self._node = node
        self._replica = replica
        self._recorder = recorder
        self._wanted = wanted
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
    """Return the Euclidean norm of each of *gradients*."""
    if gradients[0].device.type == "mps":  # mps has no float64
        gradients = [gradient.cpu() for gradient in gradients]
    found: list[float] = torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients]).tolist()
    return found


def joint(each: Sequence[float]) -> float:
    """Return the Euclidean norm from the norms of the parts; NaN if any is not finite."""
    squares = [one**2 for one in each]
    return math.sqrt(math.fsum(squares)) if all(map(math.isfinite, squares)) else math.nan
