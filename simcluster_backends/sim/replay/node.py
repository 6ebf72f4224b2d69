"""The transport of a replayed node: what it sends is really sent, what reaches it does so when its script says.

Verb by verb, await by await, it does what sockets/node/transport.py does: the callbacks of the two are counted against
each other.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from simcluster.payload import Message, Payload, Sendable, as_payload, encode_header, freeze, sizes_of
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.inbox import Inbox

if TYPE_CHECKING:
    from simcluster.checkpoints.shard import Shard
    from simcluster.errors import ReplayDiverged
    from simcluster.replays.order import Answers
    from simcluster.runs.record import Recorder

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]


class Record(Protocol):
    """The record of a node, as far as it has been played: *now_s* of its clock, and *due_s* of the next event."""

    rank: int
    name: str
    now_s: float
    asides: dict[int, asyncio.Future[Any]]

    @property
    def due_s(self) -> float: ...

    def parted(self, how: str) -> ReplayDiverged: ...


class Sent(NamedTuple):
    """A message on its way, the header that it had, and when it was sent by its sender's clock, at the earliest."""

    message: Message
    header: bytes
    after_s: float


class Piece:
    """A piece of work: not run before it must have been."""

    def __init__(self, number: int, work: Callable[[], Any], done: asyncio.Future[Outcome]) -> None:
        self.number, self.work, self.done = number, work, done
        self.outcome: Outcome = (None, None)


class ReplayedNode:
    """One node: see simcluster.transport.Transport. *answers* are those of its order."""

    def __init__(
        self,
        script: Record,
        names: Sequence[str],
        seed: int,
        recorder: Recorder,
        loop: asyncio.AbstractEventLoop,
        answers: Answers,
    ) -> None:
        self.rank, self.size, self.name = script.rank, len(names), script.name
        self.recorder = recorder
        self.rng = NodeRandom(seed, self.name)
        self.inbox = Inbox(self.rank, names, loop, lambda source: None)
        self.sends: dict[int, asyncio.Future[None]] = {}  # that have not left yet, by number
        self.on_step: Callable[[int, int], None] | None = None
        self.streams: dict[int, deque[Sent]] = {}  # from each peer: sent, and not yet here
        self.fastest_s: dict[int, float] = {}  # from each peer, as the clocks of the two have it
        self.to: Callable[[int], ReplayedNode]
        self._script, self._loop = script, loop
        self._waited, self._withdrawn = set(answers.waited), set(answers.withdrawn)  # only asked who is in them
        self._refused, self._never_ran = answers.refused, set(answers.never_ran)
        self._sent = self._pieces = 0
        self._device: deque[Piece] = deque()
        self._over: dict[int, Piece] = {}
        self._took_s = iter(answers.took_s)

    @property
    def peers(self) -> list[int]:
        return self.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        payload = as_payload(content)
        header = encode_header(tag, payload)
        self.inbox.check_peer(to)
        if self.inbox.died(to):
            await asyncio.sleep(0)
            raise self.inbox.error(to)
        start_s = self.recorder.now()
        frozen = freeze(payload)
        size_bytes = sum(sizes_of(tag, frozen))
        left: asyncio.Future[None] = self._loop.create_future()
        self._leave(to, Sent(Message(self.rank, tag, frozen, size_bytes), header, self._script.now_s), left)
        try:
            if left.done():
                await asyncio.sleep(0)
            await left
        except ConnectionError as error:
            self.inbox.lose(to, str(error))
            raise self.inbox.error(to) from None
        self.recorder.span("send", start_s, self.recorder.now(), to, tag, size_bytes)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        start_s = self.recorder.now()
        message = await self.inbox.take(source, tag)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, self.recorder.now(), message.source, message.tag, message.size_bytes)
        return message

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        self._pieces += 1
        number = self._pieces
        done: asyncio.Future[Outcome] = self._loop.create_future()
        self._device.append(Piece(number, partial(work, *args, **kwargs), done))
        try:
            result, error = await done
        except asyncio.CancelledError:
            if number in self._never_ran:
                self._device = deque(piece for piece in self._device if piece.number != number)
            else:
                self._work_until(number)
                self._over.pop(number, None)
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def record(self, *, step: int, **metrics: float) -> None:
        self.recorder.metrics(step, metrics)
        if self.on_step is not None:
            self.on_step(self.rank, step)

    # what the script calls

    def arrived(self, source: int, digest: int | None = None) -> Message | None:
        """The next message from *source*, None if it has not been sent. Raises ReplayDiverged if it is another."""
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

    def first_piece(self) -> int | None:
        """The piece of work that is next to be done."""
        return next((piece.number for piece in self._device if not piece.done.done()), None)

    def complete(self, number: int) -> None:
        """The end of a piece of work is told."""
        self._work_until(number)
        piece = self._over.pop(number, None)
        if piece is None or piece.done.done():
            raise self._script.parted(f"the record has the end of its piece of work {number}, which nobody waits for")
        piece.done.set_result(piece.outcome)

    # inside

    def _leave(self, to: int, sent: Sent, left: asyncio.Future[None]) -> None:
        self._sent += 1
        number = self._sent
        if number in self._refused:
            left.set_exception(ConnectionResetError(self._refused[number]))
            return
        if number not in self._withdrawn:
            self.to(to).streams.setdefault(self.rank, deque()).append(sent)
            self.recorder.sent(to, sent.message.size_bytes)
        if number in self._waited:
            self.sends[number] = left
        else:
            left.set_result(None)

    def _work_until(self, number: int) -> None:
        """A device works in order: what was asked for before *number* has run, too."""
        while self._device and self._device[0].number <= number:
            piece = self._device.popleft()
            if piece.number in self._never_ran:
                continue
            try:
                piece.outcome = piece.work(), None
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                piece.outcome = None, error
            now_s = self.recorder.now()
            self.recorder.span("compute", now_s - next(self._took_s, 0.0), now_s, -1, "", 0)
            self._over[piece.number] = piece


class ReplayedChannel:
    """Where the real node's checkpoints went: nothing is kept again, only the waiting for it is the same."""

    def __init__(self, script: Record, loop: asyncio.AbstractEventLoop) -> None:
        self._script, self._loop = script, loop
        self._asked = 0

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        await self._answer()

    async def aside(self, work: Callable[[], T]) -> T:
        await self._answer()
        return work()

    async def _answer(self) -> None:
        self._asked += 1
        self._script.asides[self._asked] = answer = self._loop.create_future()
        await answer


def body_crc(payload: Payload) -> int:
    """The checksum that a frame's body of these tensors has."""
    import google_crc32c
    import torch

    crc = 0
    for tensor in payload.tensors:
        if tensor.nbytes:
            crc = google_crc32c.extend(crc, tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return int(crc)
