"""The desk between a server's thread and an engine's loop.

Requests and cancellations go to the engine; tokens and ends of answers come back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from simcluster.lm.engine.request_source import COUNTS, AnswerEnd, AnswerToken, Cancel, EngineLoad, Order
from simcluster.lm.request import NO_LOGPROBS, Logprobs, Request, rest
from simcluster.lm.serving.setup import PlacementState

MOST_OPEN: Final = 256
"""Default limit on the number of open requests, which wait or are being answered."""

STOPPING: Final = "the server is stopping"

NOTHING: Final = EngineLoad(0, 0, 0.0, 0, ())


class Unavailable(Exception):
    """An error that says why the server takes no request now."""


@dataclass(slots=True, eq=False)
class PendingAnswer:
    """An answer in progress. The engine's thread adds to it; `more` waits in the server's *loop*.

    *times_s* has the time of each token, by the clock of *asked_s*. At *begun_s* the engine began
    to compute the prompt. If the request asks for log-probabilities, *logprobs* has an entry per
    token, which the reader removes. The request's `max_tokens` bounds the size of the answer.
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
        """Wait for a change; return the new tokens, and the end of the answer if it has ended."""
        await self._changed.wait()
        self._changed.clear()
        # Read the end before the tokens: the other thread may add both in between, and this call
        # would then return the end without the last tokens.
        outcome = self.outcome
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
        """Tokens per second after the first token; None until there are two tokens."""
        span_s = self.times_s[-1] - self.times_s[0] if len(self.times_s) > 1 else 0.0
        return (len(self.times_s) - 1) / span_s if span_s > 0 else None


class Observer(Protocol):
    """A listener for tokens and ends. Its methods are called in the engine's thread."""

    def token(self, answer: PendingAnswer) -> None: ...
    def end(self, answer: PendingAnswer, at_s: float) -> None: ...


class RequestBroker:
    """The desk of a server, and the source and sink of its engine. Both threads can use it.

    At most *most* requests are open. Requests are refused before `open` and after `stop` or
    `close`. *engines* counts the engines so far, *placed* is the placement of the last one, and
    *on_open* is called with it.
    *counts* has the sums of COUNTS over all engines. *lag_s* is how far virtual time is behind real
    time in the simulator.
    """

    def __init__(self, most: int = MOST_OPEN, now: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.now = now
        self.observer: Observer | None = None
        self.last_load: EngineLoad | None = None
        self.lag_s = 0.0
        self.placed: PlacementState | None = None
        self.on_open: Callable[[PlacementState | None], object] = lambda placed: None
        self.engines = 0
        self.counts = dict.fromkeys(COUNTS, 0)
        self._counted = NOTHING
        self._changed = threading.Condition()
        self._answers: dict[str, PendingAnswer] = {}
        self._orders: deque[Order] = deque()
        self._queued: deque[str] = deque()  # ids of requests that the engine has not begun
        self._why_not = "the model is being loaded"
        self._is_open = self._ends = False
        self._wake: Callable[[], object] = lambda: None
        self._waiter: asyncio.Future[None] | None = None
        self._watchers: set[Callable[[EngineLoad], object]] = set()

    # The server calls the methods below.

    @property
    def why_not(self) -> str:
        """The reason why requests are refused, or "" if they are taken."""
        return "" if self._is_open else self._why_not

    @property
    def open_requests(self) -> int:
        return len(self._answers)

    @property
    def is_idle(self) -> bool:
        return not self._answers and not self._orders and not self._ends

    def ask(self, request: Request) -> PendingAnswer:
        """Queue *request* for the engine; return its answer; see `ask_all`."""
        return self.ask_all([request])[0]

    def ask_all(self, requests: Sequence[Request]) -> list[PendingAnswer]:
        """Queue *requests* for the engine; return their answers. Call this in the server's loop.

        Raise Unavailable, and queue none, if no requests are taken now, or if too many are open.
        """
        loop, now_s = asyncio.get_running_loop(), self.now()
        answers = [PendingAnswer(request, now_s, loop) for request in requests]
        with self._changed:
            if not self._is_open:
                raise Unavailable(self._why_not)
            if len(self._answers) + len(requests) > self.most:
                raise Unavailable(f"{len(self._answers)} requests are open, and at most {self.most} are taken")
            for answer in answers:
                self._answers[answer.request.id] = answer
                self._order(answer.request)
        return answers

    def cancel(self, answer: PendingAnswer) -> None:
        """Order the engine to end *answer*. It counts as open until the engine has ended it."""
        with self._changed:
            if answer.outcome is None and answer.request.id in self._answers:
                answer.is_cancelled = True
                self._order(Cancel(answer.request.id))

    def watch(self, told: Callable[[EngineLoad], object]) -> Callable[[], None]:
        """Call *told* with every load, in the engine's thread. Return a function to stop that."""
        with self._changed:
            self._watchers.add(told)

        def stop() -> None:
            with self._changed:
                self._watchers.discard(told)

        return stop

    def stop(self) -> None:
        """Refuse new requests, cancel the open ones, and let the engine end after its orders."""
        with self._changed:
            self._is_open = False
            self._why_not = STOPPING
            self._ends = True
            for answer in self._answers.values():
                answer.is_cancelled = True
                self._orders.append(Cancel(answer.request.id))
            self._changed.notify_all()
            self._wake()

    # The engine calls the methods below.

    def open(
        self, wake: Callable[[Callable[[], object]], object] | None = None, placed: PlacementState | None = None
    ) -> None:
        """Take requests for a new engine, unless `stop` has been called.

        The first orders of the engine continue all open requests. *wake* schedules a call on the
        engine's loop, which wakes `next`. If *wake* is None, a pacer must call `drain`.
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
                    self.end(AnswerEnd(answer.request.id, left))
        self.on_open(placed)
        self.load(NOTHING)

    def pause(self) -> None:
        """Drop the orders of an engine that has ended. Open requests stay for the next engine."""
        with self._changed:
            self._orders.clear()
            self._queued.clear()

    def close(self, why: str) -> None:
        """Refuse requests until `open`, and end all open answers with the error *why*."""
        with self._changed:
            self._is_open, self._why_not = False, why
            self.pause()
            answers = list(self._answers)
        for request in answers:
            self.end(AnswerEnd(request, "error", why))

    async def next(self) -> Order | None:
        """Wait for the next order; return None after the last one, once `stop` was called."""
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
        """Wake a waiting `next` if it can return. Call this in the engine's loop."""
        if self._waiter is not None and not self._waiter.done() and (self._orders or self._ends):
            self._waiter.set_result(None)

    def wait(self, most_s: float) -> None:
        """Block this thread until there is something to do, or for at most *most_s*."""
        with self._changed:
            if self.is_idle:
                self._changed.wait(most_s)

    def token(self, token: AnswerToken) -> None:
        answer = self._answers.get(token.request)
        if answer is None:
            return
        now_s = self.now()
        self._begin(answer, now_s)
        if answer.request.logprobs != NO_LOGPROBS:
            # Add this before the token: the server's thread takes an entry for each token that it
            # sees.
            answer.logprobs.append(token.logprobs)
        answer.times_s.append(now_s)
        answer.tokens.append(token.token)
        if self.observer is not None:
            self.observer.token(answer)
        answer.notify()

    def end(self, end: AnswerEnd) -> None:
        with self._changed:
            answer = self._answers.pop(end.request, None)
        if answer is None:
            return
        now_s = self.now()
        self._begin(answer, now_s)
        answer.outcome = end
        if self.observer is not None:
            self.observer.end(answer, now_s)
        answer.notify()

    def load(self, load: EngineLoad) -> None:
        now_s = self.now()
        while len(self._queued) > load.waiting:  # engines begin requests in order
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
        """Set `begun_s` of *answer*, unless it is already set."""
        if answer.begun_s is None:
            answer.begun_s = now_s
            with suppress(ValueError):
                self._queued.remove(answer.request.id)

    def _order(self, order: Order) -> None:
        self._orders.append(order)
        self._changed.notify_all()
        self._wake()
