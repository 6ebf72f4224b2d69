"""The desk of given requests: it hands them out at their times, and records the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from simcluster.lm.engine.desk import EngineLoad, Order, RequestSource, TokenSink
from simcluster.lm.request import Logprobs, Reason, Request, rest
from simcluster.transport import Transport

TOKEN, END, BEGAN = "token/", "end/", "began"
"""Prefixes of the rows about a request, before its id; and the row of the moment from which arrivals count."""

COUNTS = ("preemptions", "proposed", "accepted")
"""Numbers of engines that are recorded as rows."""

PREFILLED = "prefilled"
"""The tokens that went through the model in chunks, on a node with an engine."""

EMPTY = "empty_memory_bytes"
"""The memory of a real node's process before it loads its share."""

REASONS: tuple[Reason, ...] = ("stop", "length", "cancelled", "error")
"""A row has a reason's place in this list."""


class RequestCounter:
    """*source* and *sink* as they are, with the number of requests in hand: taken, and not ended yet."""

    def __init__(self, source: RequestSource, sink: TokenSink) -> None:
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


class OfflineRequests:
    """Hands out *requests* in the order of their arrivals, and records every token and end as a row of *node*, which a
    follower of the run sees at once.

    Every `begin` is for another engine: it first gets what is left of the requests that the one before had in hand.
    *counts* are those of all engines together.
    """

    def __init__(self, node: Transport, requests: Iterable[Request]) -> None:
        self._node = node
        self._waiting = deque(sorted(requests, key=lambda request: request.arrival_s))
        self._open: dict[str, tuple[Request, list[int]]] = {}
        self._again = deque[Request]()
        self._began_s: float | None = None
        self._last: EngineLoad | None = None
        self.counts = dict.fromkeys(COUNTS, 0)

    def begin(self, began_s: float | None = None) -> None:
        """Count arrivals from *began_s*, by default from now; from the first call on they stay as they are."""
        if self._began_s is None:
            self._began_s = asyncio.get_running_loop().time() if began_s is None else began_s
        self._again.clear()
        self._last = None
        for request, tokens in list(self._open.values()):
            left = rest(request, tokens)
            if isinstance(left, Request):
                self._again.append(left)
            else:
                self.end(request.id, left)

    async def next(self) -> Order | None:
        if self._again:
            return self._again.popleft()
        if not self._waiting:
            return None
        assert self._began_s is not None, "begin comes first"
        late_s = self._began_s + self._waiting[0].arrival_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, late_s))
        request = self._waiting.popleft()  # not before: this may be cancelled while it waits
        self._open[request.id] = request, []
        return request

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        tokens = self._open[request][1]
        tokens.append(token)
        self._node.record(step=len(tokens), **{f"{TOKEN}{request}": token})

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        _, tokens = self._open.pop(request)
        self._node.record(step=len(tokens), **{f"{END}{request}": REASONS.index(reason)})

    def load(self, load: EngineLoad) -> None:
        for name in COUNTS:
            self.counts[name] += getattr(load, name) - getattr(self._last, name, 0)  # an engine counts from its start
        self._last = load
