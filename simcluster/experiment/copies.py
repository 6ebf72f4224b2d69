"""Copies one node's weights every so many steps, off the clock: `evaluate_consensus: true`.

This file knows replicas and recorders. It must not know what becomes of the copies: see simcluster.results.copies.
"""

from __future__ import annotations

import torch

from simcluster.results.copies import Copy
from simcluster.results.record import Recorder
from simcluster.workloads import Replica


class Copies:
    """Fills the record's copies where the algorithm records a step, the first at or after each multiple of *every*.

    A rank that lacks parts of the model records none, and so has none.
    """

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        self._every, self._replica, self._recorder = every, replica, recorder
        self._next_step = (replica.done // every + 1) * every
        self._others = recorder.on_metrics
        recorder.on_metrics = self._on_metrics

    def _on_metrics(self, step: int, values: dict[str, float]) -> None:
        if self._others is not None:
            self._others(step, values)
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            numbers = torch.cat([tensor.reshape(-1) for tensor in self._replica.snapshot()])
            exact = numbers.dtype in (torch.float32, torch.float64)
            vector = (numbers if exact else numbers.float()).numpy()
            copy = Copy(self._recorder.now(), step, vector.dtype.str, vector.nbytes, vector.tobytes())
            self._recorder.record.copies.append(copy)

    def finish(self) -> None:
        """What is recorded from now on is off the clock, and copied no more."""
        self._recorder.on_metrics = self._others
