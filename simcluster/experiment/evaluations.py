"""Held-out loss and accuracy of one replica, off the clock: weights are kept at the time, and judged at the end."""

from __future__ import annotations

import asyncio

from torch import Tensor

from simcluster.runs.record import Recorder
from simcluster.runs.summary import ACCURACY, LOSS
from simcluster.workloads import Replica

_NAMES = {"loss": LOSS, "accuracy": ACCURACY}


class Evaluations:
    """Keeps the weights where a step is recorded, the first at or after each multiple of *every*.

    The time and step of an evaluation are those at which its weights were held.
    """

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        self._every, self._recorder = every, recorder
        self._kept: list[tuple[float, int, list[Tensor]]] = []
        self.go_on(replica)

    def go_on(self, replica: Replica) -> None:
        """From now on it is *replica* that is evaluated."""
        self._replica = replica
        self._next_step = (replica.done // self._every + 1) * self._every

    def note(self, step: int) -> None:
        """*step* is recorded."""
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            self._kept.append((self._recorder.now(), step, self._replica.snapshot()))

    async def finish(self, finished_s: float) -> None:
        """Judges what was kept, and the final weights; lets heartbeats through in between."""
        last_step = self._recorder.record.steps
        for time_s, step, weights in [*self._kept, (finished_s, last_step, self._replica.parameters)]:
            await asyncio.sleep(0)
            for name, value in self._replica.evaluate_weights(weights).items():
                self._recorder.metric_at(time_s, step, _NAMES[name], value)
