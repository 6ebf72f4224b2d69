"""One node's view of its cluster, as shared by all backends: see simcluster.transport.Transport.

The number of times an operation awaits determines the order of events in the simulator, and in a replay, which compares
callback counts with a real node's. Every await that they share is here, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from simcluster.errors import PeerLost
from simcluster.payload import Message, Payload, Sendable, as_payload
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.inbox import fail

if TYPE_CHECKING:
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.common.inbox import Inbox, Waiting

T = TypeVar("T")
Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The result of a piece of work, or its exception: a future cannot carry a StopIteration."""


class PendingSend(Protocol):
    """A message on its way out: *injected* is done when its last byte has left, or fails with a ConnectionError."""

    @property
    def injected(self) -> asyncio.Future[None]: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def left_s(self) -> float:
        """When it left; valid only after it has."""

    def withdraw(self) -> None:
        """Send none of it or all of it: its `send` was cancelled."""


S = TypeVar("S", bound=PendingSend)


class PeerNews(Protocol):
    """News of peers: *has_news* is whether any has ever gone."""

    @property
    def has_news(self) -> bool: ...


class WorkPiece(Protocol):
    """A piece of work given to a device."""

    done: asyncio.Future[Outcome]


P = TypeVar("P", bound=WorkPiece)


class BaseNode(Generic[S, P]):
    """The operations of one node. A backend supplies `_post`, and its device's `_submit` and `_call_off`.

    An algorithm gets this object, and no public name leads to anything else of the backend.
    """

    def __init__(self, rank: int, names: Sequence[str], seed: int, recorder: Recorder, inbox: Inbox) -> None:
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.rng = NodeRandom(seed, self.name)
        self.recorder = recorder
        self._inbox, self._now = inbox, recorder.now
        self._news: PeerNews = inbox

    @property
    def peers(self) -> tuple[int, ...]:
        return self._inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        self._inbox.check_peer(to)
        if self._news.has_news:
            await self._check_reach(to)
        start_s = self._now()
        sending = self._post(to, tag, payload)
        if sending is None:
            await asyncio.sleep(0)
            return
        try:
            if sending.injected.done():
                await asyncio.sleep(0)
            await sending.injected
        except asyncio.CancelledError:
            sending.withdraw()
            raise
        except ConnectionError as error:
            raise self._lost(to, sending, str(error)) from None
        finally:
            self._forget(sending)
        self.recorder.span("send", start_s, sending.left_s, to, tag, sending.size_bytes)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """See simcluster.transport.OptionalVerbs."""
        payload = as_payload(content)
        self._inbox.check_peer(to)
        if self._news.has_news:
            await self._check_reach(to)
        start_s = self._now()
        sending = self._post(to, tag, payload)
        if sending is None:
            return await self.recv(source, tag)
        injected = sending.injected
        try:
            message = await self._inbox.take(source, tag, partial(self._join, to, sending))
            self.recorder.received(message.size_bytes)
            self.recorder.span("recv", start_s, self._now(), message.source, message.tag, message.size_bytes)
            if not injected.done():
                await injected
            injected.result()
        except BaseException as error:
            sending.withdraw()
            if injected.done() and not injected.cancelled():
                injected.exception()  # it may have failed for the same reason, which is reported once
            if isinstance(error, ConnectionError):
                raise self._lost(to, sending, str(error)) from None
            raise
        finally:
            self._forget(sending)
        self.recorder.span("send", start_s, sending.left_s, to, tag, sending.size_bytes)
        return message

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        start_s = self._now()
        message = await self._inbox.take(source, tag)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, self._now(), message.source, message.tag, message.size_bytes)
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        piece = self._submit(partial(work, *args, **kwargs))
        try:
            result, error = await piece.done
        except asyncio.CancelledError:
            self._call_off(piece)
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def record(self, *, step: int, **metrics: float) -> None:
        self.recorder.metrics(step, metrics)

    # supplied by a backend

    def _post(self, to: int, tag: str, payload: Payload) -> S | None:
        """Put a message on its stream, its tensors copied or frozen; return None if there is nothing to wait for."""
        raise NotImplementedError

    def _submit(self, work: Callable[[], Any]) -> P:
        """Give *work* to the device."""
        raise NotImplementedError

    def _call_off(self, piece: P) -> None:
        """Note that no caller waits for *piece* any more."""
        raise NotImplementedError

    # overridable

    async def _check_reach(self, to: int) -> None:
        """Raise PeerLost if *to* is known to have died."""
        if self._inbox.died(to):
            await asyncio.sleep(0)
            raise self._inbox.error(to)

    def _lost(self, to: int, sending: S, reason: str) -> PeerLost:
        """Return the error of *sending*, which could not leave because *to* is gone."""
        self._inbox.lose(to, reason)
        return self._inbox.error(to)

    def _join(self, to: int, sending: S, receiver: Waiting) -> None:
        """Let *receiver* fail with *sending*: both are halves of one exchange."""

        def failed(injected: asyncio.Future[None]) -> None:
            if not (receiver.done() or injected.cancelled()) and (error := injected.exception()) is not None:
                fail(receiver, self._lost(to, sending, str(error)))

        if sending.injected.done():
            failed(sending.injected)
        else:
            sending.injected.add_done_callback(failed)

    def _forget(self, sending: S) -> None:
        """Note that no `send` waits for *sending* any more."""
