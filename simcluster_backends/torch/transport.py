"""One node's view of its cluster over torch.distributed: simcluster.transport.Transport, promise by promise."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch

from simcluster.errors import ENDED, ProtocolError
from simcluster.payload import Message, Sendable, as_payload
from simcluster.rng import NodeRandom
from simcluster.runs.record import Recorder
from simcluster.transport import ANY, Any_, Cost
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.device_thread import DeviceThread
from simcluster_backends.common.inbox import INBOX_BYTES, Inbox
from simcluster_backends.torch.frame import Frame, Kind, content_of, control_frame, data_frame, read_message
from simcluster_backends.torch.group import Group
from simcluster_backends.torch.link import Link

T = TypeVar("T")

log = logging.getLogger("simcluster.torch")

LAST_WORDS_S = 1.0
"""How long what a lost peer had sent may still come."""
WORK_S = 5.0
"""How long the piece of work that runs when all is over may take to end."""
THREADS_S = 0.5
"""How long threads may take to end once all is cut: those that gloo has forgotten do not."""


class TorchTransport:
    """A node whose peers are the other ranks of *group*. Made inside its loop."""

    def __init__(
        self,
        rank: int,
        names: list[str],
        seed: int,
        recorder: Recorder,
        group: Group,
        *,
        inbox_bytes: int = INBOX_BYTES,
    ) -> None:
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.rng = NodeRandom(seed, self.name)
        self.recorder = recorder
        self.done = self.computing = 0  # pieces of work and records; pieces of work now
        self.outcomes: dict[int, bytes] = {}  # what peers have handed in
        self._sending: dict[int, str] = {}
        self._sends = self._received = 0
        self._inbox_bytes, self._group = inbox_bytes, group
        self._loop = asyncio.get_running_loop()
        self.inbox = Inbox(rank, names, self._loop, self._has_room)
        self._device = DeviceThread(f"device of {self.name}")
        recorder.settle = self._device.settle
        self._over: set[int] = set()  # peers of whom nothing more comes
        self._all_over = asyncio.Event()
        self._links = {
            peer: Link(group, peer, self, self._loop) for peer in range(self.size) if peer != rank
        }  # fmt: skip
        if not self._links:
            self._all_over.set()
        for link in self._links.values():
            link.start()

    @property
    def peers(self) -> list[int]:
        return self.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        frame = data_frame(tag, as_payload(content))  # frozen here, before any wait
        self.inbox.check_peer(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        start_s = self.recorder.now()
        left: asyncio.Future[None] = self._loop.create_future()
        self._sends += 1
        number = self._sends
        self._sending[number] = f"send(to={to}, tag={tag!r}, {frame.buffer.numel()} B)"
        sending = self._links[to].put(frame, left, lambda: self.recorder.sent(to, frame.size_bytes))
        try:
            await asyncio.sleep(0)
            await left
        except asyncio.CancelledError:
            self._links[to].withdraw(sending)
            raise
        except ConnectionError as error:
            self.inbox.lose(to, str(error))
            raise self.inbox.error(to) from None
        finally:
            del self._sending[number]
            if left.done() and not left.cancelled():
                left.exception()  # seen, also where the wait was cancelled first
        self.recorder.span("send", start_s, self.recorder.now(), to, tag, frame.size_bytes)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        start_s = self.recorder.now()
        message = await self.inbox.take(source, tag)
        self._received += 1
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, self.recorder.now(), message.source, message.tag, message.size_bytes)
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        done: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

        def piece() -> None:
            start_s = self.recorder.now()
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = work(*args, **kwargs), None
            except BaseException as error:
                # Handed over as a value: a future refuses to carry StopIteration, and the waiter would hang.
                outcome = None, error
            with suppress(RuntimeError):  # the loop is closed: nobody waited any more
                self._loop.call_soon_threadsafe(self._computed, done, outcome, start_s, self.recorder.now())

        self.computing += 1
        waiting = self._device.submit(piece)
        try:
            result, error = await done
        except asyncio.CancelledError:
            if waiting.cancel():  # it never ran, so nobody else counts it down
                self.computing -= 1
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def record(self, *, step: int, **metrics: float) -> None:
        self.done += 1
        self.recorder.metrics(step, metrics)

    # what the node calls

    async def hand_in(self, to: int, content: bytes, timeout_s: float, *, urgent: bool) -> None:
        """Gives *content* to *to*, which goes without if it is gone or does not take it; *urgent*: before all that
        waits to be sent there.
        """
        if urgent:
            self._links[to].drop_waiting()
        await self._put_and_wait(to, control_frame(Kind.OUTCOME, content), timeout_s)

    async def finish(self, reason: str = "", timeout_s: float = 60.0) -> None:
        """This node's algorithm has ended, well unless there is a *reason*: says so, and drops what still comes."""
        self.inbox.close()
        ends = []
        for peer, link in self._links.items():
            if reason:
                link.drop_waiting()  # nobody waits for those sends any more
                self._loop.run_in_executor(None, link.warn, reason)
            link.make_room()
            ends.append(self._put_and_wait(peer, control_frame(Kind.END, reason.encode()), timeout_s))
        await asyncio.gather(*ends)

    async def all_over(self) -> None:
        """Returns when every peer has ended or is lost."""
        await self._all_over.wait()

    def expect_end(self, rank: int, reason: str) -> None:
        """Somebody who knows says that *rank* is gone. What it had sent comes first, if it comes soon."""
        if rank in self._over or rank == self.rank:
            return
        self._links[rank].make_room()
        self._loop.call_later(LAST_WORDS_S, self.give_up, rank, reason)

    def give_up(self, rank: int, reason: str) -> None:
        """*rank* is lost here, now. A stream that gloo has not ended stays with its threads, which are daemons."""
        if rank in self._over:
            return
        self._links[rank].close(reason)
        self.gone(rank, reason)

    async def close(self) -> None:
        """Cuts all connections, and waits a while for the piece of work that may still run. Nothing may follow."""
        self.inbox.close()
        for link in self._links.values():
            link.close("this node has closed")
        await self._loop.run_in_executor(None, self._end_threads)

    def _end_threads(self) -> None:
        self._group.cut()
        until_s = time.monotonic() + THREADS_S
        for link in self._links.values():
            link.join(until_s)
        if not self._device.close(WORK_S):
            log.warning("%s: a piece of its work has not ended after %g s; it is left behind", self.name, WORK_S)

    @property
    def moved(self) -> int:
        """Rises with everything that happens here: who sees it stand still may worry."""
        return self.done + self._received + sum(link.moved for link in self._links.values())

    def waits(self) -> list[str]:
        """What this node's tasks wait for, in words."""
        return self.inbox.mailbox.describe() + list(self._sending.values())

    # what links call

    def received(self, rank: int, kind: Kind, header_bytes: int, buffer: torch.Tensor) -> bool:
        if kind is Kind.DATA:
            if self.inbox.lost.get(rank) is not None:
                return True  # too late: it was given up
            self.inbox.put(read_message(rank, header_bytes, buffer))
            return self.inbox.mailbox.queued_bytes(rank) < self._inbox_bytes
        content = content_of(buffer)
        if kind is Kind.OUTCOME:
            self.outcomes[rank] = content
        else:
            try:
                self.gone(rank, content.decode() or ENDED)
            except UnicodeDecodeError:
                raise ProtocolError("an end that is no text") from None
        return True

    def gone(self, rank: int, reason: str) -> None:
        self.inbox.lose(rank, reason)
        self._over.add(rank)
        if len(self._over) == len(self._links):
            self._all_over.set()

    # inside

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self._inbox_bytes:
            self._links[source].make_room()

    async def _put_and_wait(self, to: int, frame: Frame, timeout_s: float) -> None:
        left: asyncio.Future[None] = self._loop.create_future()
        self._links[to].put(frame, left, lambda: None)
        try:
            async with asyncio.timeout(timeout_s):
                await left
        except (ConnectionError, TimeoutError):
            self.gone(to, "it takes no last words")

    def _computed(
        self,
        done: asyncio.Future[tuple[Any, BaseException | None]],
        outcome: tuple[Any, BaseException | None],
        start_s: float,
        end_s: float,
    ) -> None:
        self.computing -= 1
        self.done += 1
        self.recorder.span("compute", start_s, end_s, -1, "", 0)
        if not done.done():
            done.set_result(outcome)
