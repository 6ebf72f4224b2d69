"""The desk of given requests: a source that hands them out at their times, and a sink that records the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from simcluster.inference.engine.desk import Load, Order, Sink, Source
from simcluster.inference.request import Reason, Request
from simcluster.transport import Transport

TOKEN, END, BEGAN = "token/", "end/", "began"
"""Prefixes of the rows about a request, before its id; and the row of the moment from which arrivals count."""

PREEMPTIONS = "preemptions"

EMPTY = "empty_memory_bytes"
"""The memory of a real node's process before it loads its share."""

REASONS: tuple[Reason, ...] = ("stop", "length", "cancelled", "error")
"""A row has a reason's place in this list."""


class GivenSource:
    """Hands out *requests* in the order of their arrivals, counted from now."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests: Iterator[Request] = iter(sorted(requests, key=lambda request: request.arrival_s))
        self._began_s = asyncio.get_running_loop().time()

    async def next(self) -> Order | None:
        request = next(self._requests, None)
        if request is not None:
            late_s = self._began_s + request.arrival_s - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, late_s))
        return request


class Attended:
    """*source* and *sink* as they are, with the number of requests in hand: taken, and not ended yet."""

    def __init__(self, source: Source, sink: Sink) -> None:
        self._source, self._sink = source, sink
        self.in_hand = 0
        self.token, self.load = sink.token, sink.load

    async def next(self) -> Order | None:
        order = await self._source.next()
        self.in_hand += isinstance(order, Request)
        return order

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self.in_hand -= 1
        self._sink.end(request, reason, message)


class RecordingSink:
    """Records every token and end as a row of *node*, which a follower of the run sees at once."""

    def __init__(self, node: Transport) -> None:
        self._node = node
        self._counts: dict[str, int] = {}
        self.last: Load | None = None

    def token(self, request: str, token: int) -> None:
        step = self._counts[request] = self._counts.get(request, 0) + 1
        self._node.record(step=step, **{f"{TOKEN}{request}": token})

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        self._node.record(step=self._counts.pop(request, 0), **{f"{END}{request}": REASONS.index(reason)})

    def load(self, load: Load) -> None:
        self.last = load
