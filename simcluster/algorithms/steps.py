"""The loop of every algorithm, which yields the batches that are left, and after each step saves a
state to resume from.

    state = resumable(replica, theta=..., m=...)          # from the checkpoint, or else these values
    async for step, batch in steps(replica, keep=state):  # the body is one step of the paper
        ...

When the body ends, the step ends: its batches are in the weights, a checkpoint is written if one is due, and a rank
that was asked to leave does so. Breaking out of the loop skips this for the current step.

A `Lag` holds results that are applied some steps after their step sent them off, such as late
gradients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

from simcluster.workloads import Batch, Replica


def resumable(replica: Replica, **initial: Any) -> SimpleNamespace:
    """Return a namespace of the algorithm's variables: their values from the checkpoint if the run
    resumes, otherwise *initial*.
    """
    found = replica.restored(**initial)
    return SimpleNamespace(**dict(zip(initial, found if len(initial) > 1 else (found,), strict=True)))


class Late:
    """The *parts* of a result that *step* sent off, which may still be in flight, and a *note* to
    read when they have arrived.
    """

    def __init__(self, step: int, parts: Sequence[asyncio.Future[Any]], *note: Any) -> None:
        self.step = step
        self.parts = parts
        self.note = note
        self._results: list[Any] | None = None

    @classmethod
    def again(cls, step: int, *saved: Any) -> Late:
        """Restore a result from a checkpoint; *saved* is its note followed by the results of its
        parts.
        """
        late = cls(step, [], *saved[:-1])
        late._results = saved[-1]
        return late

    @property
    def unfinished(self) -> bool:
        """Whether a part is still in flight."""
        return not all(part.done() for part in self.parts)

    async def results(self) -> list[Any]:
        """Wait for all parts and return their results."""
        if self._results is None:
            self._results = [await part for part in self.parts]
        return self._results

    async def saved(self) -> list[Any]:
        """Return the results in the form that a checkpoint keeps."""
        return await self.results()


class Lag:
    """Results that are applied *depth* rounds (of *size* batches each) after they were sent off,
    oldest first.

        async for step, batch in steps(replica, lag=lag):
            lag.send_off(Late(step, [group.create_task(...)], loss))
            for late in lag.due(step):
                ...  # apply await late.results()
        for late in lag.rest():
            ...

    A checkpoint waits for the results in flight and keeps them; on resume, *again* turns each saved
    result into a `Late`. A group that loses a rank does not wait for results: it resumes from the
    last step whose result was applied. *lacking*: whether the weights lack a step's batches until
    its result is applied, as with late gradients; false for late means of weights. *apart*: the
    number of results by which one rank can be ahead of another; *depth* by default.
    """

    def __init__(
        self, replica: Replica, depth: int, *, size: int = 1, lacking: bool = True, apart: int | None = None,
        again: Callable[..., Late] = Late.again,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._depth = depth
        self._size = size
        self._lacking = lacking
        self._apart = depth if apart is None else apart
        self._in_flight = deque(again(*saved) for saved in replica.restored(under_way=[]))
        self._landed = 0
        self._leads = list[int]()

    def lead(self) -> int:
        """Return the number of steps with parts still in flight, and note it for `leads`."""
        self._leads.append(sum(late.unfinished for late in self._in_flight))
        return self._leads[-1]

    def leads(self) -> dict[str, float]:
        """Return the mean and the maximum of what `lead` has noted, as metrics; none if it has noted none."""
        found = self._leads
        return {"lead_mean": sum(found) / len(found), "lead_max": max(found)} if found else {}

    def send_off(self, late: Late) -> None:
        """Hold *late*, which must be the newest result, until it is due."""
        self._in_flight.append(late)

    def due(self, step: int) -> Iterator[Late]:
        """Yield the results to apply at *step*, oldest first."""
        while self._in_flight and self._rounds(step) - self._rounds(self._in_flight[0].step) >= self._depth:
            yield self._land(step)

    def rest(self) -> Iterator[Late]:
        """Yield all results that have not been applied, oldest first. Call this at or after the
        last step.
        """
        while self._in_flight:
            yield self._land(self._replica.steps)

    async def state(self, step: int) -> dict[str, Any]:
        """Return the arguments for `Progress.checkpoint` at *step*. Wait for results only if a
        checkpoint is due.
        """
        landed, self._landed = self._landed, 0
        due = self._replica.is_due(step)
        kept = [[late.step, *late.note, await late.saved()] for late in self._in_flight] if due else []
        return {"landed": landed, "apart": self._apart, "under_way": kept}

    def _land(self, step: int) -> Late:
        late = self._in_flight.popleft()
        self._landed = late.step if self._lacking else step
        return late

    def _rounds(self, step: int) -> int:
        return -(-step // self._size)


class rounds(AsyncIterator[tuple[int, Iterator[Batch]]]):
    """Yield (step, batches) for each remaining round of *size* batches; after the round, *step*
    batches are done.

    Use up all of *batches*: each one is drawn on demand, and the next round starts after the last
    one drawn. *keep*: the result of `resumable`. *lag*: the results in flight. *joined*: whether
    each batch is the joined batch of all ranks. *how*: options of `Progress.checkpoint` (`loose`,
    `places`).
    """

    def __init__(
        self, replica: Replica, size: int, *, keep: SimpleNamespace | None = None, lag: Lag | None = None,
        joined: bool = False, **how: Any,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._size = size
        self._keep = keep
        self._lag = lag
        self._how = how
        self._batches: Iterator[Batch] = replica.joined_batches() if joined else replica.batches()
        self._first = self._step = replica.done

    async def __anext__(self) -> tuple[int, Iterator[Batch]]:
        """End the current round, if any, and begin the next."""
        if self._step > self._first:
            if self._replica.decide is not None:
                await self._replica.decide(self._step)
            late = await self._lag.state(self._step) if self._lag is not None else {}
            self._replica.on_step(late.get("landed", self._step))
            kept = vars(self._keep) if self._keep is not None else {}
            await self._replica.checkpoint(self._step, **self._how, **late, **kept)
        if self._step >= self._replica.steps:
            raise StopAsyncIteration
        count = min(self._size, self._replica.steps - self._step)
        self._step += count
        return self._step, islice(self._batches, count)


class steps(AsyncIterator[tuple[int, Batch]]):
    """Yield (step, batch) for each remaining step, counted from 1. These are `rounds` of one batch,
    with the same options.
    """

    def __init__(self, replica: Replica, **how: Any) -> None:
        self._rounds = rounds(replica, 1, **how)

    async def __anext__(self) -> tuple[int, Batch]:
        step, batches = await anext(self._rounds)
        return step, next(batches)
