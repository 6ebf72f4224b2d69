"""A link to one peer: an ordered stream each way and a control lane.

Each has its own thread, because gloo's waits block. If a peer dies in the middle of a buffer, gloo
waits for the rest forever; the control lane, which always listens, notices the loss. The threads
are daemons, because some may never return from gloo.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

from simcluster.errors import ProtocolError
from simcluster.process.exits import left_behind
from simcluster_backends.common.real_node import NumberedSend
from simcluster_backends.torch.device_transfers import DeviceTransfers
from simcluster_backends.torch.frame import LEAD_NUMBERS, TorchFrame, TorchFrameKind, content_of, parts_of, read_lead
from simcluster_backends.torch.group import CONTROL_TAG, TorchGroup, first_line

NEWS_BYTES = 512


@dataclass(eq=False)
class TorchSend(NumberedSend):
    """A send of *frame*, queued on *link*. *on_left* is called when the frame has left.

    *injected* then gets a result, or a ConnectionError if the link is lost.
    """

    link: RankLink
    frame: TorchFrame
    on_left: Callable[[], object]
    begun: bool = False

    def withdraw(self) -> None:
        self.link.withdraw(self)


class RankLink:
    """The streams to and from *rank*. They begin with `start`, and end with an END frame each way.

    They also end when the peer is lost. *received* is called with the rank and each frame's kind,
    bytes of header, buffer and body; it returns whether there is room for more. *gone* is called
    with the rank and a reason when a stream fails, *expect_end* when the control lane reports that
    the peer has failed or is lost. Bodies on a device need a *carrier*.
    """

    def __init__(
        self, group: TorchGroup, rank: int, loop: asyncio.AbstractEventLoop, received: Callable[..., bool],
        gone: Callable[[int, str], None], expect_end: Callable[[int, str], None],
        carrier: DeviceTransfers | None = None,
    ) -> None:  # fmt: skip
        self.rank = rank
        self.moved = 0  # the number of frames in both directions
        self._group = group
        self._loop = loop
        self._carrier = carrier
        self._take = received
        self._gone = gone
        self._expect_end = expect_end
        self._queue: deque[TorchSend] = deque()
        self._begun: TorchSend | None = None
        self._changed = threading.Condition()
        self._room = threading.Event()
        self._closed = ""
        self._threads = [
            threading.Thread(target=run, name=f"{name} {rank}", daemon=True)
            for run, name in ((self._send_all, "to"), (self._receive_all, "from"), (self._listen, "news of"))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(
        self,
        frame: TorchFrame,
        number: int = 0,
        on_left: Callable[[], object] = lambda: None,
        now: Callable[[], float] = time.monotonic,
    ) -> TorchSend:
        """Queue *frame* after all others; return its send."""
        sending = TorchSend(number, frame.size_bytes, self._loop.create_future(), now, self, frame, on_left)
        with self._changed:
            if self._closed:
                sending.injected.set_exception(ConnectionError(self._closed))
            else:
                self._queue.append(sending)
                self._changed.notify()
        return sending

    def withdraw(self, sending: TorchSend) -> None:
        """Drop *sending* if it has not begun; half a frame would break the stream."""
        with self._changed:
            if not sending.begun and sending in self._queue:
                self._queue.remove(sending)

    def drop_waiting(self) -> None:
        """Drop all queued frames except the one that has begun."""
        with self._changed:
            self._queue.clear()

    def make_room(self) -> None:
        """Note that the member accepts frames again."""
        self._room.set()

    def close(self, reason: str) -> None:
        """Stop sending and receiving, and fail pending sends with *reason*. The threads end later.

        A frame that has begun fails, too: gloo may never return from a send to a dead peer.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = reason
            waiting, self._queue = [*([self._begun] if self._begun else []), *self._queue], deque()
            self._changed.notify()
        self._room.set()
        if self._carrier is not None:
            ending = threading.Thread(target=self._carrier.close, name=f"end of {self.rank}", daemon=True)
            self._threads.append(ending)
            ending.start()
        for sending in waiting:
            self._tell(self._failed, sending, reason)

    def warn(self, reason: str) -> None:
        """Notify the peer, ahead of all queued frames, that this node has failed. This blocks."""
        news = torch.zeros(NEWS_BYTES, dtype=torch.uint8)
        text = reason.encode()[:NEWS_BYTES] or b"failed"
        news[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        with suppress(RuntimeError):
            self._group.send(self.rank, news, CONTROL_TAG)

    def join(self, until_s: float) -> None:
        """Wait for the threads until *until_s* of the monotonic clock; then abandon the rest."""
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
            if thread.is_alive():
                left_behind(thread, waits=True)

    # the threads

    def _send_all(self) -> None:
        number = 0
        while (sending := self._next()) is not None:
            frame = sending.frame
            try:
                self._group.send(self.rank, frame.lead(number))
                for part in parts_of(frame.buffer):
                    self._group.send(self.rank, part)
                if frame.body is not None:
                    assert self._carrier is not None
                    self._carrier.give(frame.body)
            except RuntimeError as error:
                self._tell(self._failed, sending, first_line(error))
                self._lose(first_line(error))
                return
            number += 1
            self.moved += 1
            self._tell(self._left, sending)
            if frame.kind is TorchFrameKind.END:
                return

    def _next(self) -> TorchSend | None:
        with self._changed:
            self._begun = None
            self._changed.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                return None
            self._begun = sending = self._queue.popleft()
            sending.begun = True
            return sending

    def _receive_all(self) -> None:
        number = 0
        try:
            while not self._closed:
                lead = torch.zeros(LEAD_NUMBERS, dtype=torch.int64)
                self._group.recv(self.rank, lead)
                kind, header_bytes, total_bytes, body_bytes = read_lead(lead, number)
                buffer = torch.empty(total_bytes, dtype=torch.uint8)
                for part in parts_of(buffer):
                    self._group.recv(self.rank, part)
                body = self._body(body_bytes) if kind is TorchFrameKind.CARRIED else None
                number += 1
                self.moved += 1
                self._room.clear()
                self._tell(self._received, kind, header_bytes, buffer, body)
                if kind is TorchFrameKind.END:
                    return
                del buffer, body, lead  # do not keep a message's memory while waiting for room
                self._room.wait()
        except (RuntimeError, ProtocolError) as error:
            self._lose(first_line(error))

    def _body(self, size_bytes: int) -> torch.Tensor:
        if self._carrier is None:
            raise ProtocolError("tensors on a device, but this rank's messages travel through the host")
        return self._carrier.take(size_bytes)

    def _listen(self) -> None:
        news = torch.zeros(NEWS_BYTES, dtype=torch.uint8)
        try:
            self._group.recv(self.rank, news, CONTROL_TAG)
            reason = content_of(news).rstrip(b"\0").decode(errors="replace")
        except RuntimeError as error:
            reason = first_line(error)
        self._tell(self._expect_end, self.rank, reason)

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: the run is over
            self._closed = self._closed or "the run is over"
            self._room.set()

    def _lose(self, reason: str) -> None:
        self.close(reason)
        self._tell(self._gone, self.rank, reason)

    # callbacks in the loop

    def _received(
        self, kind: TorchFrameKind, header_bytes: int, buffer: torch.Tensor, body: torch.Tensor | None
    ) -> None:
        try:
            room = self._take(self.rank, kind, header_bytes, buffer, body)
        except ProtocolError as error:
            self.close(str(error))
            self._gone(self.rank, str(error))
            return
        if room:
            self._room.set()

    def _left(self, sending: TorchSend) -> None:
        sending.on_left()
        with suppress(asyncio.InvalidStateError):
            sending.injected.set_result(None)

    def _failed(self, sending: TorchSend, reason: str) -> None:
        if not sending.injected.done():
            sending.injected.set_exception(ConnectionError(reason))
