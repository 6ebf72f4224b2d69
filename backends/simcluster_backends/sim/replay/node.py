"""The transport of a replayed node: it sends messages, and receives those next in its script.

Its operations wait where those of a real node do, since both share common/node.py: a replay compares the callback
counts of the two.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from simcluster.compute.at_work import at_work
from simcluster.payload import Message, Payload, encode_header, freeze, sizes_of
from simcluster_backends.common.inbox import Inbox
from simcluster_backends.common.node import BaseNode, Outcome
from simcluster_backends.common.shortcuts import fast_of

if TYPE_CHECKING:
    from simcluster.checkpoints.shard import Shard
    from simcluster.errors import ReplayDiverged
    from simcluster.runs.event_order import ImmediateAnswers
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.sim.loop.event_loop import SimLoop

T = TypeVar("T")


class Record(Protocol):
    """A node's record as played so far: the last event was at *now_s*, the next is at *due_s*."""

    rank: int
    now_s: float
    asides: dict[int, asyncio.Future[Any]]

    @property
    def due_s(self) -> float: ...

    def parted(self, how: str) -> ReplayDiverged: ...


class ReplayedWork:
    """A piece of work, which is run as late as possible."""

    def __init__(self, number: int, work: Callable[[], Any], done: asyncio.Future[Outcome]) -> None:
        self.number = number
        self.work = work
        self.done = done
        self.outcome: Outcome = (None, None)


class ReplayedSend:
    """A send: *injected* is done when the script says that the message has left."""

    def __init__(self, size_bytes: int, injected: asyncio.Future[None], now: Callable[[], float]) -> None:
        self.size_bytes = size_bytes
        self.injected = injected
        self._now = now

    @property
    def left_s(self) -> float:
        return self._now()

    def withdraw(self) -> None:
        """Do nothing: the script knows which sends were withdrawn."""


class ReplayedNode(BaseNode[ReplayedSend, ReplayedWork]):
    """One node: see simcluster.transport.Transport. *answers* are the ones in its record."""

    def __init__(
        self,
        script: Record,
        names: Sequence[str],
        seed: int,
        recorder: Recorder,
        loop: SimLoop,
        answers: ImmediateAnswers,
        kept: Collection[str],
    ) -> None:
        super().__init__(script.rank, names, seed, recorder, Inbox(script.rank, names, loop, lambda source: None))
        self.inbox = self._inbox
        self.fast = fast_of(kept, self._exchange)
        self.sends: dict[int, asyncio.Future[None]] = {}  # not injected yet, by number
        self.on_step: Callable[[int, int], None] | None = None
        # From each peer: messages in flight, each with its header and its earliest departure by the sender's clock.
        self.streams: dict[int, deque[tuple[Message, bytes, float]]] = {}
        self.fastest_s: dict[int, float] = {}  # the shortest transit from each peer, by both clocks
        self.to: Callable[[int], ReplayedNode]
        self._script = script
        self._loop = loop
        self._waited, self._withdrawn = set(answers.waited), set(answers.withdrawn)  # only for membership tests
        self._refused = answers.refused
        self._never_ran = set(answers.never_ran)
        self._sent = self._pieces = 0
        self.device: deque[ReplayedWork] = deque()  # the pieces of work yet to run, in order
        self._over: dict[int, ReplayedWork] = {}  # the pieces that have run, by number
        self._took_s = iter(answers.took_s)

    def record(self, *, step: int, **metrics: float) -> None:
        super().record(step=step, **metrics)
        if self.on_step is not None:
            self.on_step(self.rank, step)

    # called by the script

    def arrived(self, source: int, digest: int | None = None) -> Message | None:
        """Return the next message from *source*, or None if it has not been sent yet.

        Raise ReplayDiverged if the message does not have the checksum *digest*."""
        stream = self.streams.get(source)
        if not stream:
            return None
        message, header, after_s = stream.popleft()
        if digest is None:
            return message
        if (found := zlib.crc32(header, body_crc(message.payload))) != digest:
            what = f"message {message.tag!r} from rank {source}"
            raise self._script.parted(f"{what} has the checksum {found:08x}, recorded is {digest:08x}")
        took_s = self._script.due_s - after_s
        self.fastest_s[source] = min(took_s, self.fastest_s.get(source, took_s))
        return message

    def complete(self, number: int) -> None:
        """Finish piece of work *number*. Raise ReplayDiverged if no task waits for it."""
        self._work_until(number)
        piece = self._over.pop(number, None)
        if piece is None or piece.done.done():
            raise self._script.parted(f"the record has the end of its piece of work {number}, but no task waits for it")
        piece.done.set_result(piece.outcome)

    def _post(self, to: int, tag: str, payload: Payload) -> ReplayedSend:
        header = encode_header(tag, payload)
        frozen = freeze(payload)
        size_bytes = sum(sizes_of(tag, frozen))
        left = ReplayedSend(size_bytes, self._loop.create_future(), self._now)
        sent = Message(self.rank, tag, frozen, size_bytes), header, self._script.now_s
        self._sent += 1
        number = self._sent
        if number in self._refused:
            left.injected.set_exception(ConnectionResetError(self._refused[number]))
            return left
        if number not in self._withdrawn:
            self.to(to).streams.setdefault(self.rank, deque()).append(sent)
            self.recorder.sent(to, size_bytes)
        if number in self._waited:
            self.sends[number] = left.injected
        else:
            left.injected.set_result(None)
        return left

    def _submit(self, work: Callable[[], Any]) -> ReplayedWork:
        self._pieces += 1
        piece = ReplayedWork(self._pieces, work, self._loop.create_future())
        self.device.append(piece)
        return piece

    def _call_off(self, piece: ReplayedWork) -> None:
        if piece.number in self._never_ran:
            self.device = deque(other for other in self.device if other is not piece)
        else:
            self._work_until(piece.number)
            self._over.pop(piece.number, None)

    def _work_until(self, number: int) -> None:
        """Run all work up to *number*: a device works in order."""
        while self.device and self.device[0].number <= number:
            piece = self.device.popleft()
            if piece.number in self._never_ran:
                continue
            try:
                piece.outcome = at_work(piece.work), None
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                piece.outcome = None, error
            now_s = self.recorder.now()
            self.recorder.span("compute", now_s - next(self._took_s, 0.0), now_s, -1, "", 0)
            self._over[piece.number] = piece


class ReplayedChannel:
    """A stand-in for a node's checkpoint channel: it waits as often, but keeps no checkpoint."""

    def __init__(self, script: Record, loop: SimLoop) -> None:
        self._script = script
        self._loop = loop
        self._requests = 0

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._answer()

    async def aside(self, work: Callable[[], T]) -> T:
        await self._answer()
        return work()

    async def _answer(self) -> None:
        self._requests += 1
        self._script.asides[self._requests] = answer = self._loop.create_future()
        await answer


def body_crc(payload: Payload) -> int:
    """Return the checksum (CRC-32C) of a frame body with the tensors of *payload*."""
    import google_crc32c
    import torch

    crc = 0
    for tensor in payload.tensors:
        if tensor.nbytes:
            crc = google_crc32c.extend(crc, tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return int(crc)
