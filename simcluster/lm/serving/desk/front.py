"""The desk between a server's thread and an engine's loop: requests and cancels go in, tokens and ends come out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from simcluster.lm.engine.desk import COUNTS, Cancel, EngineLoad, Order
from simcluster.lm.request import NO_LOGPROBS, Logprobs, Reason, Request, rest
from simcluster.lm.serving.setup import PlacementState

MOST_OPEN: Final = 256
"""Limit on the requests that are waiting or being answered."""

STOPPING: Final = "the server is stopping"

NOTHING: Final = EngineLoad(0, 0, 0.0, 0, ())


class Unavailable(Exception):
    """A request that cannot be taken now; the message says why."""


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """How an answer ended. *message* says why, if the reason is "error"."""

    reason: Reason
    message: str = ""


@dataclass(slots=True, eq=False)
class PendingAnswer:
    """An answer in progress. The engine's thread adds to it; `more` waits in the loop that asked.

    *times_s* has the time of each token, on the clock of *asked_s*; *begun_s* is when its prompt was first computed.
    *logprobs* has those of the tokens, for the one that waits to take out, if the request asks for them. The request's
    *max_tokens* bounds its size.
    """

    request: Request
    asked_s: float
    loop: asyncio.AbstractEventLoop
    begun_s: float | None = None
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    logprobs: deque[Logprobs | None] = field(default_factory=deque)
    outcome: AnswerEnd | None = None
    is_cancelled: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _taken: int = 0

    async def more(self) -> tuple[list[int], AnswerEnd | None]:
        """Wait for a change; return the tokens since the last call, and the end after the last of them."""
        await self._changed.wait()
        self._changed.clear()
        outcome = self.outcome  # before the tokens: no token follows an end
        tokens = self.tokens[self._taken :]
        self._taken += len(tokens)
        return tokens, outcome

    def notify(self) -> None:
        with suppress(RuntimeError):  # the server's loop has closed
            self.loop.call_soon_threadsafe(self._changed.set)

    @property
    def ttft_s(self) -> float | None:
        return self.times_s[0] - self.asked_s if self.times_s else None

    @property
    def tokens_per_s(self) -> float | None:
        """The rate after the first token; None before the second."""
        span_s = self.times_s[-1] - self.times_s[0] if len(self.times_s) > 1 else 0.0
        return (len(self.times_s) - 1) / span_s if span_s > 0 else None


class Observer(Protocol):
    """A listener to tokens and ends, called in the engine's thread."""

    def token(self, answer: PendingAnswer) -> None: ...
    def end(self, answer: PendingAnswer, at_s: float) -> None: ...


class RequestBroker:
    """A RequestSource and a TokenSink for one engine, and a desk for the server. Its methods may be called from any
    thread.

    At most *most* requests are open. It takes none before `open` and none after `close`. *engines* counts those so far,
    *placed* is the placement of the last one; *counts* are COUNTS of all of them together.
    """

    def __init__(self, most: int = MOST_OPEN, now: Callable[[], float] = time.monotonic) -> None:
        self.most, self.now = most, now
        self.observer: Observer | None = None
        self.last_load: EngineLoad | None = None
        self.lag_s = 0.0
        self.placed: PlacementState | None = None
        self.engines, self.counts = 0, dict.fromkeys(COUNTS, 0)
        self._counted = NOTHING
        self._changed = threading.Condition()
        self._answers: dict[str, PendingAnswer] = {}
        self._orders: deque[Order] = deque()
        self._queued: deque[str] = deque()  # ids that the engine has, but has not begun to compute
        self._why_not = "the model is being loaded"
        self._is_open = self._ends = False
        self._wake: Callable[[], object] = lambda: None
        self._waiter: asyncio.Future[None] | None = None
        self._watchers: set[Callable[[EngineLoad], object]] = set()

    # the server's side

    @property
    def why_not(self) -> str:
        """Why it takes no request, "" if it does."""
        return "" if self._is_open else self._why_not

    @property
    def open_requests(self) -> int:
        return len(self._answers)

    @property
    def is_idle(self) -> bool:
        return not self._answers and not self._orders and not self._ends

    def ask(self, request: Request) -> PendingAnswer:
        """Return the answer to *request*, which now waits for the engine. Raise Unavailable. Called in a loop."""
        answer = PendingAnswer(request, self.now(), asyncio.get_running_loop())
        with self._changed:
            if not self._is_open:
                raise Unavailable(self._why_not)
            if len(self._answers) >= self.most:
                raise Unavailable(f"{len(self._answers)} requests are open, the most that are taken")
            self._answers[request.id] = answer
            self._order(request)
        return answer

    def cancel(self, answer: PendingAnswer) -> None:
        """End *answer* now, unless it has ended. Its place is free once the engine has ended it."""
        with self._changed:
            if answer.outcome is None and answer.request.id in self._answers:
                answer.is_cancelled = True
                self._order(Cancel(answer.request.id))

    def watch(self, told: Callable[[EngineLoad], object]) -> Callable[[], None]:
        """Call *told* with every load, in the engine's thread, until the returned function is called."""
        with self._changed:
            self._watchers.add(told)

        def stop() -> None:
            with self._changed:
                self._watchers.discard(told)

        return stop

    def stop(self) -> None:
        """Take no more requests, and let the engine end."""
        with self._changed:
            self._is_open, self._why_not, self._ends = False, STOPPING, True
            for answer in self._answers.values():
                answer.is_cancelled = True
                self._orders.append(Cancel(answer.request.id))
            self._changed.notify_all()
            self._wake()

    # the engine's side

    def open(
        self, wake: Callable[[Callable[[], object]], object] | None = None, placed: PlacementState | None = None
    ) -> None:
        """Start taking requests. *wake* schedules `drain` on the engine's loop; without it, a pacer calls `drain`.

        The first orders continue the open requests of an engine that has ended.
        """
        with self._changed:
            self.placed, self._counted = placed, NOTHING
            self.engines += 1
            self._is_open = not self._ends
            if wake is not None:
                self._wake = lambda: wake(self.drain)
            self.pause()
            for answer in list(self._answers.values()):
                left = "cancelled" if answer.is_cancelled else rest(answer.request, answer.tokens)
                if isinstance(left, Request):
                    self._orders.append(left)
                else:
                    self.end(answer.request.id, left)
        self.load(NOTHING)

    def pause(self) -> None:
        """Keep all open requests for the next engine: the present one has ended."""
        with self._changed:
            self._orders.clear()
            self._queued.clear()

    def close(self, why: str) -> None:
        """Take no more requests, and end all answers with an error."""
        with self._changed:
            self._is_open, self._why_not = False, why
            self.pause()
            answers = list(self._answers)
        for request in answers:
            self.end(request, "error", why)

    async def next(self) -> Order | None:
        """Return the next order, None once `stop` was called and all are taken."""
        while True:
            with self._changed:
                if self._orders:
                    order = self._orders.popleft()
                    if isinstance(order, Request):
                        self._queued.append(order.id)
                    return order
                if self._ends:
                    return None
                self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def drain(self) -> None:
        """Let a waiting `next` look for orders. Called in the engine's loop."""
        if self._waiter is not None and not self._waiter.done() and (self._orders or self._ends):
            self._waiter.set_result(None)

    def wait(self, most_s: float) -> None:
        """Block this thread until it is not idle, or for *most_s*."""
        with self._changed:
            if self.is_idle:
                self._changed.wait(most_s)

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        answer = self._answers.get(request)
        if answer is None:
            return
        now_s = self.now()
        self._begin(answer, now_s)
        if answer.request.logprobs != NO_LOGPROBS:
            answer.logprobs.append(logprobs)  # before the token: the other thread takes them by tokens
        answer.times_s.append(now_s)
        answer.tokens.append(token)
        if self.observer is not None:
            self.observer.token(answer)
        answer.notify()

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        with self._changed:
            answer = self._answers.pop(request, None)
        if answer is None:
            return
        now_s = self.now()
        self._begin(answer, now_s)
        answer.outcome = AnswerEnd(reason, message)
        if self.observer is not None:
            self.observer.end(answer, now_s)
        answer.notify()

    def load(self, load: EngineLoad) -> None:
        now_s = self.now()
        while len(self._queued) > load.waiting:  # requests begin in the order in which they came
            begun = self._answers.get(self._queued.popleft())
            if begun is not None and begun.begun_s is None:
                begun.begun_s = now_s
        for name in COUNTS:
            self.counts[name] += max(0, getattr(load, name) - getattr(self._counted, name))
        self.last_load = self._counted = load
        with self._changed:
            watchers = list(self._watchers)
        for told in watchers:
            told(load)

    def _begin(self, answer: PendingAnswer, now_s: float) -> None:
        """Note the beginning of *answer*, unless it was noted before."""
        if answer.begun_s is None:
            answer.begun_s = now_s
            with suppress(ValueError):
                self._queued.remove(answer.request.id)

    def _order(self, order: Order) -> None:
        self._orders.append(order)
        self._changed.notify_all()
        self._wake()
