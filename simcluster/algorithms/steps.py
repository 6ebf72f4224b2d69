"""The loop of every algorithm: batches from where the run stands, and a state to resume from after each step.

    state = resumable(replica, theta=..., m=...)          # from the checkpoint, or else these values
    async for step, batch in steps(replica, keep=state):  # the body is one step of the paper
        ...

When the body ends, the step ends: its batches are in the weights, a checkpoint is written if one is due, and a rank
that was asked to leave does so. Breaking out of the loop skips this for the current step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

from simcluster.algorithms.lag import Lag
from simcluster.workloads import Batch, Replica


def resumable(replica: Replica, **initial: Any) -> SimpleNamespace:
    """Return the algorithm's variables by name, from the checkpoint that the run resumes from or else *initial*."""
    found = replica.restored(**initial)
    return SimpleNamespace(**dict(zip(initial, found if len(initial) > 1 else (found,), strict=True)))


class rounds:
    """Yield (step, batches) of each remaining round: *size* batches, after which *step* batches are done.

    Use up all of *batches*: each is drawn on demand, and the next round starts after them. *keep*: the result of
    `resumable`. *lag*: the results in flight. *joined*: a batch joins those of all ranks. *how*: passed on to
    `Progress.checkpoint` (`loose`, `places`).
    """

    def __init__(
        self, replica: Replica, size: int, *, keep: SimpleNamespace | None = None, lag: Lag | None = None,
        joined: bool = False, **how: Any,
    ) -> None:  # fmt: skip
        self._replica, self._size, self._keep, self._lag, self._how = replica, size, keep, lag, how
        self._batches: Iterator[Batch] = replica.joined_batches() if joined else replica.batches()
        self._first = self._step = replica.done

    def __aiter__(self) -> rounds:
        return self

    async def __anext__(self) -> tuple[int, Iterator[Batch]]:
        """End the current round, if any, and begin the next."""
        if self._step > self._first:
            late = await self._lag.state(self._step) if self._lag is not None else {}
            kept = vars(self._keep) if self._keep is not None else {}
            await self._replica.checkpoint(self._step, **self._how, **late, **kept)
        if self._step >= self._replica.steps:
            raise StopAsyncIteration
        count = min(self._size, self._replica.steps - self._step)
        self._step += count
        return self._step, islice(self._batches, count)


class steps:
    """Yield (step, batch) of each remaining step, counted from 1: rounds of one batch, with the same options."""

    def __init__(self, replica: Replica, **how: Any) -> None:
        self._rounds = rounds(replica, 1, **how)

    def __aiter__(self) -> steps:
        return self

    async def __anext__(self) -> tuple[int, Batch]:
        step, batches = await anext(self._rounds)
        return step, next(batches)
