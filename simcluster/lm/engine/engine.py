"""The engine on a placement's first node: take requests, keep batches in flight, emit tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from simcluster.lm.engine.batch import IssuedBatch
from simcluster.lm.engine.meter import LoadMeter
from simcluster.lm.engine.request_sequence import RequestSequence
from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, Cancel, RequestSource, TokenSink
from simcluster.lm.engine.scheduler import Scheduler


class ModelRunner(Protocol):
    """An interface that runs batches through all parts of the model, and ends them in order."""

    async def issue(self, issued: IssuedBatch) -> None:
        """Start the batch *issued*; return when the next one may start."""

    async def tokens(self) -> Sequence[list[Any]]:
        """Wait for the oldest batch in flight; return its results as arguments of `Scheduler.take`.

        The results are lists: first the chosen tokens; then the number of tokens of each sampling
        piece, unless each piece has one; then ids and log-probabilities, if a request asks for
        them.
        """

    async def end(self) -> None:
        """Notify the other nodes that no batch follows."""

    @property
    def meter(self) -> LoadMeter:
        """The meter of this node, with the latest known loads of the other nodes."""


class Engine:
    """An engine that runs the batches of *scheduler*.

    It takes requests from *source*, and sends tokens and ends of answers to *sink*. Requests that
    an earlier engine has set aside in *scheduler* continue from their cached tokens. With *give*,
    the engine only prefills: it passes each request to *give* once the request has its first token.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: RequestSource,
        sink: TokenSink,
        give: Callable[[RequestSequence], Awaitable[None]] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._source = source
        self._sink = sink
        self._give = give
        self._changed = asyncio.Event()
        self._is_closed = False
        # An earlier engine may have used the scheduler: subtract its counts.
        self._before = scheduler.counts()

    async def run(self, through: ModelRunner) -> None:
        """Answer requests with *through*; return when the source and all answers have ended."""
        async with asyncio.TaskGroup() as tasks:
            orders = tasks.create_task(self._orders())
            answers = tasks.create_task(self._answers(through))
            await self._batches(through)
            orders.cancel()
            # No token is in flight. Stop waiting for tokens before `end` lets the last stage exit:
            # a pending receive would raise the loss of that peer.
            answers.cancel()
            await through.end()

    async def _orders(self) -> None:
        scheduler, sink = self._scheduler, self._sink
        while (order := await self._source.next()) is not None:
            if isinstance(order, Cancel):
                if scheduler.cancel(order.id):
                    sink.end(AnswerEnd(order.id, "cancelled"))
            elif (tokens := scheduler.resume(order)) is not None:
                for token in tokens:
                    sink.token(AnswerToken(order.id, token))
            elif why := scheduler.add(order):
                sink.end(AnswerEnd(order.id, "error", why))
            self._changed.set()
        self._is_closed = True
        self._changed.set()

    async def _batches(self, through: ModelRunner) -> None:
        scheduler = self._scheduler
        while True:
            self._changed.clear()
            if chosen := scheduler.plan():
                self._tell(through)  # report that the requests of this batch no longer wait
                await through.issue(scheduler.issue(chosen))
                continue
            if scheduler.is_empty:
                if self._is_closed:
                    return
                self._tell(through)
            await self._changed.wait()

    async def _answers(self, through: ModelRunner) -> None:
        while True:
            for answer in self._scheduler.take(*await through.tokens()):
                if isinstance(answer, AnswerToken):
                    self._sink.token(answer)
                else:
                    self._sink.end(answer)
            if self._give is not None:
                for sequence in self._scheduler.part_with():
                    await self._give(sequence)
                    self._scheduler.retire(sequence)
            self._tell(through)
            self._changed.set()

    def _tell(self, through: ModelRunner) -> None:
        self._sink.load(self._scheduler.load(through.meter.loads, self._before))
