"""One node's view of its cluster over real connections: simcluster.transport.Transport, promise by promise.

This file knows ranks, messages and loss. It must not know processes, launchers or how connections came about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from backends.sockets.frame import BODY_LIMIT_BYTES, Frame, Kind, Outgoing, octets
from simcluster.errors import ENDED, ProtocolError
from simcluster.experiment.fault_kinds import Factors, stretched
from simcluster.inbox import Inbox
from simcluster.misuse import check_work
from simcluster.payload import Message, Payload, Sendable, as_payload, body_bytes, encode_header, freeze
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost

if TYPE_CHECKING:
    from backends.sockets.connection import Connection
    from simcluster.results.record import Recorder

T = TypeVar("T")

INBOX_BYTES = 64 * 1024**2
LAST_WORDS_S = 1.0
"""How long what a lost peer had sent may still come out of its connection."""


class SocketTransport:
    """A node whose peers are other processes. `attach` gives it a connection for each of them."""

    def __init__(
        self,
        rank: int,
        names: list[str],
        seed: int,
        recorder: Recorder,
        *,
        inbox_bytes: int = INBOX_BYTES,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        slow: Factors = (),
    ) -> None:
        self.rank, self.size, self.name = rank, len(names), names[rank]
        self.recorder = recorder
        self.rng = NodeRandom(seed, self.name)
        self.done = 0  # pieces of work and records: what counts as progress of a run
        self.computing = 0
        self.sending: dict[int, str] = {}  # number -> words, for the report of a run that stands still
        self._inbox_bytes, self._body_limit_bytes = inbox_bytes, body_limit_bytes
        self._slow = slow  # by the fault plan
        self._loop = asyncio.get_running_loop()
        self._links: dict[int, Connection] = {}
        self.inbox = Inbox(rank, names, self._loop, self._has_room)
        self._sends = self._received = 0
        self._device = ThreadPoolExecutor(1, thread_name_prefix=f"device of {self.name}")

    @property
    def peers(self) -> list[int]:
        return self.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        header = encode_header(tag, payload)
        self._check_sizes(tag, payload)
        self.inbox.check_peer(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        start_s = self.recorder.now()
        frozen = freeze(payload)
        frame = Outgoing(Kind.DATA, header, [octets(tensor) for tensor in frozen.tensors])
        left: asyncio.Future[None] = self._loop.create_future()
        sending = self._links[to].put(frame, left, lambda: self._has_left(to, frame.size_bytes))
        self._sends += 1
        number = self._sends
        self.sending[number] = f"send(to={to}, tag={tag!r}, {frame.body_bytes} B)"
        try:
            if left.done():
                await asyncio.sleep(0)
            await left
        except asyncio.CancelledError:
            self._links[to].withdraw(sending)
            raise
        except ConnectionError as error:
            self.lose(to, str(error))
            raise self.inbox.error(to) from None
        finally:
            del self.sending[number]
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

        def piece() -> tuple[T | None, BaseException | None]:
            start_s = self.recorder.now()
            try:
                return work(*args, **kwargs), None
            except BaseException as error:
                # Handed over as a value: a future refuses to carry StopIteration, and the waiter would hang.
                return None, error
            finally:
                if self._slow:
                    took_s = self.recorder.now() - start_s
                    time.sleep(stretched(self._slow, start_s, took_s) - took_s)
                self._loop.call_soon_threadsafe(self._computed, start_s, self.recorder.now())

        self.computing += 1
        waiting = self._device.submit(piece)
        try:
            result, error = await asyncio.wrap_future(waiting)
        except asyncio.CancelledError:
            if waiting.cancel():  # it never ran, so nobody else counts it down
                self.computing -= 1
            raise
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def record(self, *, step: int, **metrics: float) -> None:
        self.done += 1
        self.recorder.metrics(step, metrics)

    # what the node calls

    def attach(self, rank: int, connection: Connection) -> None:
        """*connection* is the stream to and from *rank*; its handshake is done."""
        self._links[rank] = connection
        connection.on_frame = lambda frame: self._receive(rank, frame)
        connection.on_lost = lambda reason: self.lose(rank, reason)

    def hold(self, rank: int, writing: bool, reading: bool) -> None:
        """A fault: nothing is written to *rank* for now, or nothing read from it."""
        if rank in self._links:
            self._links[rank].hold(writing=writing, reading=reading)

    def give_up(self, rank: int, reason: str) -> None:
        """*rank* has been out of reach for too long: it is lost here, and so is what it had sent."""
        if rank in self._links and not self.inbox.lost.get(rank):
            self._links[rank].abort(reason)

    def lose(self, rank: int, reason: str) -> None:
        """*rank* is gone: dead, or done if *reason* is ENDED."""
        self.inbox.lose(rank, reason)

    def expect_end(self, rank: int, reason: str) -> None:
        """Somebody who knows says that *rank* is gone. What it had sent comes first, if it comes soon."""
        link = self._links.get(rank)
        if self.inbox.died(rank) or link is None:
            return
        link.resume_reading()
        self._loop.call_later(LAST_WORDS_S, link.abort, reason)

    def finish(self) -> None:
        """The algorithm has ended well: says goodbye to everyone, and from now on drops what arrives."""
        for link in self._links.values():
            if link.is_open:
                link.put(Outgoing(Kind.GOODBYE))
        self._stop_receiving()

    async def close(self, *, crash: bool = False) -> None:
        """Ends all connections, and waits for the piece of work that may still run. Nothing may follow."""
        self._stop_receiving()
        if crash:
            for link in self._links.values():
                link.abort("this node crashed")
        await asyncio.gather(*(link.end() for link in self._links.values()))
        await self._loop.run_in_executor(None, lambda: self._device.shutdown(wait=True, cancel_futures=True))

    @property
    def moved(self) -> int:
        """Rises with everything that happens here: a launcher that sees it stand still may worry."""
        return self.done + self._received + sum(link.bytes_moved for link in self._links.values())

    def waits(self) -> list[str]:
        """What this node's tasks wait for, in words."""
        return self.inbox.mailbox.describe() + list(self.sending.values())

    @property
    def handshake_and_goodbye_bytes(self) -> int:
        """What left on the connections to peers beside messages."""
        data = sum(count[1] for count in self.recorder.record.sent_to.values())
        return max(0, sum(link.bytes_sent for link in self._links.values()) - data)

    # inside

    def _stop_receiving(self) -> None:
        self.inbox.close()
        for link in self._links.values():
            link.on_lost = lambda reason: None
            link.resume_reading()

    def _receive(self, rank: int, frame: Frame) -> None:
        if frame.kind is Kind.GOODBYE:
            self.lose(rank, ENDED)
            return
        if frame.kind is not Kind.DATA or frame.message is None:
            raise ProtocolError(f"a {frame.kind.name} frame on the data lane")
        if self.inbox.lost.get(rank) == ENDED:
            raise ProtocolError("a message after the goodbye")
        payload = Payload(frame.tensors, frame.message.values)
        message = Message(rank, frame.message.tag, payload, frame.size_bytes)
        self.inbox.put(message)
        if self.inbox.mailbox.queued_bytes(rank) >= self._inbox_bytes:
            self._links[rank].pause_reading()

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self._inbox_bytes:
            self._links[source].resume_reading()

    def _has_left(self, to: int, size_bytes: int) -> None:
        self.recorder.sent(to, size_bytes)

    def _computed(self, start_s: float, end_s: float) -> None:
        self.computing -= 1
        self.done += 1
        self.recorder.span("compute", start_s, end_s, -1, "", 0)

    def _check_sizes(self, tag: str, payload: Payload) -> None:
        for tensor in payload.tensors:
            if tensor.device.type == "meta" or tensor.layout is not torch.strided:
                raise TypeError(f"message {tag!r}: a {tensor.device.type} {tensor.layout} tensor has no bytes to send")
        size_bytes = body_bytes(payload)
        if size_bytes > self._body_limit_bytes:
            raise ValueError(f"message {tag!r}: {size_bytes} bytes of tensors, at most {self._body_limit_bytes}")
