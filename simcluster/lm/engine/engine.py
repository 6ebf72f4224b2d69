"""The engine on a placement's first node: it takes requests, keeps batches in flight, and gives out tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from simcluster.lm.engine.batch import IssuedBatch
from simcluster.lm.engine.desk import COUNTS, Cancel, EngineLoad, NodeLoad, RequestSource, TokenSink
from simcluster.lm.engine.queued import RequestSequence
from simcluster.lm.engine.scheduler import Scheduler


class ModelRunner(Protocol):
    """A way through the model. Batches come out in the order in which they went in."""

    async def issue(self, issued: IssuedBatch) -> None:
        """Start a batch; return when the next one may start."""

    async def tokens(self) -> Sequence[list[Any]]:
        """Wait for the oldest batch that is not out yet; return the lists that `Scheduler.take` takes: the tokens that
        it chose, and the number of each piece that samples unless all have one.
        """

    async def end(self) -> None:
        """Let the other nodes end: no batch follows."""

    @property
    def loads(self) -> tuple[NodeLoad, ...]:
        """The nodes so far."""


class Engine:
    """Answers the requests of *source* to *sink*, in batches that *scheduler* makes. Requests that another engine set
    aside there continue from what it cached.

    With *give* it only prefills: *give* gets each request with its first token.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: RequestSource,
        sink: TokenSink,
        give: Callable[[RequestSequence], Awaitable[None]] | None = None,
    ) -> None:
        self._scheduler, self._source, self._sink, self._give = scheduler, source, sink, give
        self._changed = asyncio.Event()
        self._is_closed = False
        self._before = self._counts()  # of an engine that had the scheduler before

    async def run(self, through: ModelRunner) -> None:
        """Return when the source has ended and every request has its answer."""
        async with asyncio.TaskGroup() as tasks:
            orders = tasks.create_task(self._orders())
            answers = tasks.create_task(self._answers(through))
            await self._batches(through)
            orders.cancel()
            answers.cancel()  # no token is to come, and the last stage may end before its end has left here
            await through.end()

    async def _orders(self) -> None:
        scheduler, sink = self._scheduler, self._sink
        while (order := await self._source.next()) is not None:
            if isinstance(order, Cancel):
                if scheduler.cancel(order.id):
                    sink.end(order.id, "cancelled")
            elif (tokens := scheduler.resume(order)) is not None:
                for token in tokens:
                    sink.token(order.id, token)
            elif why := scheduler.add(order):
                sink.end(order.id, "error", why)
            self._changed.set()
        self._is_closed = True
        self._changed.set()

    async def _batches(self, through: ModelRunner) -> None:
        scheduler = self._scheduler
        while not (self._is_closed and scheduler.is_empty):
            self._changed.clear()
            if chosen := scheduler.plan():
                self._tell(through)  # its requests no longer wait
                await through.issue(scheduler.issue(chosen))
                continue
            if scheduler.is_empty:
                self._tell(through)
            await self._changed.wait()

    async def _answers(self, through: ModelRunner) -> None:
        while True:
            for answer in self._scheduler.take(*await through.tokens()):
                self._sink.token(answer.request, answer.token, answer.logprobs)
                if answer.reason is not None:
                    self._sink.end(answer.request, answer.reason)
            if self._give is not None:
                for sequence in self._scheduler.part_with():
                    await self._give(sequence)
                    self._scheduler.retire(sequence)
            self._tell(through)
            self._changed.set()

    def _tell(self, through: ModelRunner) -> None:
        now, counts = self._scheduler, {name: count - self._before[name] for name, count in self._counts().items()}
        self._sink.load(EngineLoad(now.running, now.waiting, now.cache_share, nodes=through.loads, **counts))

    def _counts(self) -> dict[str, int]:
        return {name: getattr(self._scheduler, name) for name in COUNTS}
