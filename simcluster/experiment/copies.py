"""Copies one node's weights every so many steps, off the clock: `evaluate_consensus: true`."""

from __future__ import annotations

import torch

from simcluster.runs.copy import Copy
from simcluster.runs.record import Recorder
from simcluster.workloads import Replica


class Copies:
    """Fills the record's copies where the algorithm records a step, the first at or after each multiple of *every*.

    A rank that lacks parts of the model records none, and so has none.
    """

    def __init__(self, every: int, replica: Replica, recorder: Recorder) -> None:
        self._every, self._recorder = every, recorder
        self.go_on(replica)

    def go_on(self, replica: Replica) -> None:
        """From now on it is *replica* that is copied."""
        self._replica = replica
        self._next_step = (replica.done // self._every + 1) * self._every

    def note(self, step: int) -> None:
        """*step* is recorded."""
        if step >= self._next_step:
            self._next_step = (step // self._every + 1) * self._every
            numbers = torch.cat([tensor.reshape(-1) for tensor in self._replica.snapshot()])
            exact = numbers.dtype in (torch.float32, torch.float64)
            vector = (numbers if exact else numbers.float()).numpy()
            copy = Copy(self._recorder.now(), step, vector.dtype.str, vector.nbytes, vector.tobytes())
            self._recorder.record.copies.append(copy)
