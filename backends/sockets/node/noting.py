"""A channel for checkpoints whose answers are events in the node's order, as everything is that its program waits for.

This file knows tasks, futures and notes. It must not know what a checkpoint is, nor where it goes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simcluster.checkpoints.keeper import Channel
from simcluster.checkpoints.shard import Shard
from simcluster.replays.notes import Notes
from simcluster.replays.order import Kind

T = TypeVar("T")


class NotedChannel:
    """*channel*, whose own waiting is none of the program's. Made outside of the program."""

    def __init__(self, channel: Channel, notes: Notes) -> None:
        self._channel, self._notes = channel, notes
        self._loop = asyncio.get_running_loop()
        self._outside = contextvars.copy_context()

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._noted(self._channel.hand_in(make))

    async def aside(self, work: Callable[[], T]) -> T:
        return await self._noted(self._channel.aside(work))

    async def _noted(self, request: Coroutine[Any, Any, T]) -> T:
        number = next(self._notes.asides)
        answer: asyncio.Future[T] = self._loop.create_future()
        task = self._outside.run(self._loop.create_task, request)

        def answered(_: object) -> None:
            if answer.done() or task.cancelled():
                return
            self._notes.note(Kind.ASIDE, number)
            if (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task.add_done_callback(answered, context=self._outside)
        try:
            return await answer
        except asyncio.CancelledError:
            task.cancel()
            raise
