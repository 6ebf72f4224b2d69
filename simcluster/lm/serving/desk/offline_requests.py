"""A desk for requests known in advance: hand them out as they arrive, and record the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from simcluster.lm.engine.request_source import AnswerEnd, AnswerToken, EngineLoad, Order, RequestSource, TokenSink
from simcluster.lm.request import Request, rest
from simcluster.runs.answer_rows import EndRecord, TokenRecord
from simcluster.runs.recorder import Recorder

BEGAN = "began"
"""Name of a metric, recorded at the moment from which arrivals count."""

COUNTS = ("preemptions", "proposed", "accepted")
"""The counts of engines that the first node records as metrics."""

PREFILLED = "prefilled"
"""Metric of a node with an engine: the number of tokens that passed the model in chunks."""

EMPTY = "empty_memory_bytes"
"""Metric of a real node: the memory of its process before it loads its part of the model."""


class RequestCounter:
    """A wrapper of *source* and *sink* that counts the requests *in_hand*, which have not ended."""

    def __init__(self, source: RequestSource, sink: TokenSink) -> None:
        self._source = source
        self._sink = sink
        self.in_hand = 0
        self.token = sink.token
        self.load = sink.load

    async def next(self) -> Order | None:
        order = await self._source.next()
        self.in_hand += isinstance(order, Request)
        return order

    def end(self, end: AnswerEnd) -> None:
        self.in_hand -= 1
        self._sink.end(end)


class OfflineRequests:
    """The desk that hands out *requests* in order of arrival; *recorder* gets every token and end.

    Call `begin` for each new engine. The new engine first gets the rest of each request that the
    previous engine had not ended. *counts* has the sums of COUNTS over all engines.
    """

    def __init__(self, recorder: Recorder, requests: Iterable[Request]) -> None:
        self._recorder = recorder
        self._waiting = deque(sorted(requests, key=lambda request: request.arrival_s))
        self._open: dict[str, tuple[Request, list[int]]] = {}
        self._again = deque[Request]()
        self._began_s: float | None = None
        self._last: EngineLoad | None = None
        self.counts = dict.fromkeys(COUNTS, 0)

    def begin(self, began_s: float | None = None) -> None:
        """Begin with a new engine.

        Arrivals count from the *began_s* of the first call, or from the time of that call if it is
        None.
        """
        if self._began_s is None:
            self._began_s = asyncio.get_running_loop().time() if began_s is None else began_s
        self._again.clear()
        self._last = None
        for request, tokens in list(self._open.values()):
            left = rest(request, tokens)
            if isinstance(left, Request):
                self._again.append(left)
            else:
                self.end(AnswerEnd(request.id, left))

    async def next(self) -> Order | None:
        if self._again:
            return self._again.popleft()
        if not self._waiting:
            return None
        assert self._began_s is not None, "begin comes first"
        late_s = self._began_s + self._waiting[0].arrival_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, late_s))
        request = self._waiting.popleft()  # after the sleep, which may be cancelled
        self._open[request.id] = request, []
        return request

    def token(self, token: AnswerToken) -> None:
        tokens = self._open[token.request][1]
        tokens.append(token.token)
        self._recorder.answer(TokenRecord(self._recorder.now(), token.request, len(tokens), token.token))

    def end(self, end: AnswerEnd) -> None:
        _, tokens = self._open.pop(end.request)
        self._recorder.answer(EndRecord(self._recorder.now(), end.request, len(tokens), end.reason))

    def load(self, load: EngineLoad) -> None:
        for name in COUNTS:
            # An engine's counts start at 0: add only the increase since its last report.
            self.counts[name] += getattr(load, name) - getattr(self._last, name, 0)
        self._last = load
