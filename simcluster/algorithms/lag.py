"""Results that are applied some steps after they were sent off, such as late gradients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simcluster.workloads import Replica


class Late:
    """The *parts* that a step sent off, which may still be in flight, and a *note* for their arrival."""

    def __init__(self, step: int, parts: Sequence[asyncio.Future[Any]], *note: Any) -> None:
        self.step, self.parts, self.note = step, parts, note
        self._results: list[Any] | None = None

    @classmethod
    def again(cls, step: int, *saved: Any) -> Late:
        """Restore from a checkpoint; *saved* is the note followed by the results."""
        late = cls(step, [], *saved[:-1])
        late._results = saved[-1]
        return late

    async def results(self) -> list[Any]:
        """Wait for all parts and return their results."""
        if self._results is None:
            self._results = [await part for part in self.parts]
        return self._results

    async def saved(self) -> list[Any]:
        """Return the results in the form that a checkpoint keeps."""
        return await self.results()


class Lag:
    """Results that are applied *depth* rounds of *size* batches after they were sent off, oldest first.

        async for step, batch in steps(replica, lag=lag):
            lag.send_off(Late(step, [group.create_task(...)], loss))
            for late in lag.due(step):
                ...  # apply await late.results()
        for late in lag.rest():
            ...

    A checkpoint waits for the results in flight and keeps them; on resume, *again* turns each into a `Late`. A group
    that loses a rank does not wait: it resumes from the last step whose result was applied. *lacking*: whether the
    weights lack a step's batches until its result is applied, as with late gradients; false for late means of weights.
    *apart*: how many more results than another rank one may have applied; *depth* by default.
    """

    def __init__(
        self, replica: Replica, depth: int, *, size: int = 1, lacking: bool = True, apart: int | None = None,
        again: Callable[..., Late] = Late.again,
    ) -> None:  # fmt: skip
        self._replica, self._depth, self._size, self._lacking = replica, depth, size, lacking
        self._apart = depth if apart is None else apart
        self._in_flight = deque(again(*saved) for saved in replica.restored(under_way=[]))
        self._landed = 0

    @property
    def unfinished(self) -> int:
        """The number of steps with parts still in flight."""
        return sum(not all(part.done() for part in late.parts) for late in self._in_flight)

    def send_off(self, late: Late) -> None:
        """Hold *late*, the newest, until it is due."""
        self._in_flight.append(late)

    def due(self, step: int) -> Iterator[Late]:
        """Yield the results to apply at *step*, oldest first."""
        while self._in_flight and self._rounds(step) - self._rounds(self._in_flight[0].step) >= self._depth:
            yield self._land(step)

    def rest(self) -> Iterator[Late]:
        """Yield everything still in flight, oldest first, at or after the last step."""
        while self._in_flight:
            yield self._land(self._replica.steps)

    async def state(self, step: int) -> dict[str, Any]:
        """Return the arguments for `Progress.checkpoint` at *step*, waiting for results only if a checkpoint is due."""
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
