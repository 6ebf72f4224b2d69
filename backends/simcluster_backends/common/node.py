"""One node's view of its cluster, as shared by all backends: see simcluster.transport.Transport.

The number of awaits in an operation determines the order of events in the simulator. A replay also
compares its count of callbacks with a real node's. So every await that backends share is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from simcluster.errors import PeerLost
from simcluster.payload import Message, Payload, Sendable, as_payload
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.inbox import fail

if TYPE_CHECKING:
    from simcluster.runs.recorder import Recorder
    from simcluster.shortcuts import Shortcuts
    from simcluster_backends.common.inbox import Inbox, Waiting

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]
"""(result, None) or (None, exception) of a piece of work: a future cannot raise StopIteration."""


class PendingSend(Protocol):
    """A message on its way out: *injected* is done when its last byte has left, or fails with a ConnectionError."""

    @property
    def injected(self) -> asyncio.Future[None]: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def left_s(self) -> float:
        """The time at which the last byte left; valid only once *injected* is done."""

    def withdraw(self) -> None:
        """Handle the cancellation of the `send`: either none or all of the message is sent."""


S = TypeVar("S", bound=PendingSend)


class RoundsAhead(Protocol):
    """A collective with rounds that the simulator computes at once, for the ranks *entered*.

    These ranks are suspended in the collective. Before a node does anything else, it must await
    `leave`, which resumes these ranks first.
    """

    @property
    def entered(self) -> Collection[int]: ...

    async def leave(self) -> None: ...


class WorkPiece(Protocol):
    """A piece of work that has been submitted to a device; *done* gets its outcome."""

    done: asyncio.Future[Outcome]


P = TypeVar("P", bound=WorkPiece)


class BaseNode(Generic[S, P]):
    """The operations of one node. A backend supplies `_post`, `_submit` and `_call_off`.

    An algorithm gets this object. No public name leads to any other part of the backend.
    """

    fast: Shortcuts | None
    _together: RoundsAhead | None = None

    def __init__(self, rank: int, names: Sequence[str], seed: int, recorder: Recorder, inbox: Inbox) -> None:
        self.rank = rank
        self.size = len(names)
        self.name = names[rank]
        self.rng = NodeRandom(seed, self.name)
        self.recorder = recorder
        self._inbox = inbox
        self._now = recorder.now
        self._news = inbox.news

    @property
    def peers(self) -> tuple[int, ...]:
        return self._inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        if self._together is not None and self._together.entered:
            await self._together.leave()
        payload = content if isinstance(content, Payload) else as_payload(content)
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

    async def _exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """Send to *to* and receive from *source* at the same time: see simcluster.shortcuts."""
        if self._together is not None and self._together.entered:
            await self._together.leave()
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
            self.recorder.recv(start_s, message)
            if not injected.done():
                await injected
            injected.result()
        except BaseException as error:
            sending.withdraw()
            # The send may have failed for the same reason: raise that error only once.
            if injected.done() and not injected.cancelled() and injected.exception() is None:
                self.recorder.span("send", start_s, sending.left_s, to, tag, sending.size_bytes)
            if isinstance(error, ConnectionError):
                raise self._lost(to, sending, str(error)) from None
            raise
        finally:
            self._forget(sending)
        self.recorder.span("send", start_s, sending.left_s, to, tag, sending.size_bytes)
        return message

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if self._together is not None and self._together.entered:
            await self._together.leave()
        start_s = self._now()
        message = await self._inbox.take(source, tag)
        self.recorder.recv(start_s, message)
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
        """Put a message on its stream, with its tensors copied or frozen.

        Return None if the sender need not wait.
        """
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
        """Return the error of *sending*, which failed because *to* is gone."""
        self._inbox.lose(to, reason)
        return self._inbox.error(to)

    def _join(self, to: int, sending: S, receiver: Waiting) -> None:
        """Make *receiver* fail if *sending* fails: they are the two halves of an exchange."""

        def failed(injected: asyncio.Future[None]) -> None:
            if not (receiver.done() or injected.cancelled()) and (error := injected.exception()) is not None:
                fail(receiver, self._lost(to, sending, str(error)))

        if sending.injected.done():
            failed(sending.injected)
        else:
            sending.injected.add_done_callback(failed)

    def _forget(self, sending: S) -> None:
        """Note that no `send` waits for *sending* any more."""
