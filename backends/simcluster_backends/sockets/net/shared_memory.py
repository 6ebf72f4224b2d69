"""Slots of memory that two processes of one machine share, through which bodies travel instead of through TCP.

The sending process makes an anonymous file of memory and a pipe, and offers both on the stream. A peer on the same
machine opens them through /proc and accepts by a byte on the pipe; any other peer cannot, and says nothing. The sender
fills the slots in turn and puts each length on the stream; the receiver copies the content and gives the slot back by
a byte on the pipe. No name appears in any file system, so nothing is left behind however the processes end.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import secrets
import stat
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, field

import msgspec
import numpy as np

from simcluster_backends.sockets.net.send_queue import SendQueue
from simcluster_backends.sockets.wire.frame import LENGTH, Bytes, decode
from simcluster_backends.sockets.wire.outgoing import OutgoingFrame
from simcluster_backends.sockets.wire.reader import FrameReader

SLOTS, SLOT_BYTES = 4, 512 * 1024
"""2 MiB per direction stay in the caches of two cores."""
MOST_SLOTS, MOST_SLOT_BYTES = 64, 4 * 1024**2
NAME = "simcluster"


class SharedMemory:
    """What the two ends of one connection share, if they can: each fills its own slots and empties the other's."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, queue: SendQueue, reader: FrameReader, on_free: Callable[[], None]
    ) -> None:
        self._loop, self._queue, self._reader, self._on_free = loop, queue, reader, on_free
        self._own: SendSlots | None = None
        self._peers: ReceiveSlots | None = None
        self._offered = self._listens = False

    def offer(self) -> None:
        """Make slots and offer them, unless that has been done."""
        if self._offered:
            return
        self._offered, self._own = True, SendSlots.make()
        if self._own is not None:
            self.listen()
            self._queue.offer(self._own.offer)

    def listen(self) -> None:
        """Call *on_free* once the peer accepts, or gives a slot back. Else the pipe is read when a slot is needed."""
        if self._own is not None and not self._listens:
            self._listens = True
            self._loop.add_reader(self._own.pipe, self._heard, self._own)

    def accept(self, offer: bytes) -> None:
        """Accept the peer's *offer*, the first one, if that is possible. Raise ProtocolError."""
        if self._peers is None:
            self._reader.slots = self._peers = ReceiveSlots.accept(offer)

    def close(self) -> None:
        """Share nothing any more. The mappings end with what still uses them."""
        if self._own is not None:
            self._deafen(self._own)
            self._own.close()
        if self._peers is not None:
            self._peers.close()
        self._own = self._peers = self._reader.slots = None

    def _heard(self, own: SendSlots) -> None:
        own.heard()
        self._queue.slots = own
        self._on_free()
        if not self._queue.is_starved:
            self._deafen(own)

    def _deafen(self, own: SendSlots) -> None:
        if self._listens:
            self._listens = False
            self._loop.remove_reader(own.pipe)


def has_one_address(transport: asyncio.Transport) -> bool:
    """Return whether both ends of *transport* have the same address, as those of one machine may."""
    own, peers = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(own and peers and own[0] == peers[0])


class MemoryOffer(msgspec.Struct, frozen=True):
    """Where a peer finds the memory and the pipe of process *pid*; the memory ends with *nonce*."""

    pid: int
    memory: int
    pipe: int
    nonce: bytes
    slots: int
    slot_bytes: int


_offers = msgspec.msgpack.Decoder(MemoryOffer)


@dataclass(eq=False)
class SendSlots:
    """The sending end of *offer*. See `Slots` in wire.frame; none is free before the offer has been accepted."""

    memory: Bytes
    offer: bytes
    pipe: int
    files: InitVar[tuple[int, ...]]
    slot_bytes: int = SLOT_BYTES
    is_accepted: bool = False
    count: int = SLOTS
    filled_bytes: int = 0
    _free: int = 0
    _next: int = 0
    _owners: list[OutgoingFrame | None] = field(default_factory=lambda: [None] * SLOTS)

    def __post_init__(self, files: tuple[int, ...]) -> None:
        self.close = weakref.finalize(self, _close, *files)

    @classmethod
    def make(cls) -> SendSlots | None:
        """Return new slots; None where the system has no such memory."""
        if sys.platform != "linux":
            return None
        import fcntl

        nonce, size_bytes = secrets.token_bytes(16), SLOTS * SLOT_BYTES
        files: tuple[int, ...] = ()
        try:
            memory, *_ = files = (os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING),)
            os.posix_fallocate(memory, 0, size_bytes + len(nonce))  # now: a page that is missing later kills
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            os.pwrite(memory, nonce, size_bytes)
            mapped = np.frombuffer(mmap.mmap(memory, size_bytes), np.uint8)
            pipe, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # no memory, or no descriptors
            _close(*files)
            return None
        offer = MemoryOffer(os.getpid(), memory, end, nonce, SLOTS, SLOT_BYTES)
        return cls(mapped, msgspec.msgpack.encode(offer), pipe, (memory, pipe, end))

    def has_room(self) -> bool:
        """Return whether the next slot can be filled."""
        if not self._free:
            self.heard()
        return self._free > 0

    def fill(self, pieces: list[Bytes], owner: OutgoingFrame | None = None) -> tuple[bytes, Bytes]:
        """Copy *pieces* of *owner* into the next slot; return what the stream says of it, and the copy."""
        if (previous := self._owners[self._next]) is not None:
            previous.move()
        self._owners[self._next] = owner
        at = start = self._next * SLOT_BYTES
        for piece in pieces:
            self.memory[at : at + len(piece)] = piece
            at += len(piece)
        self._next, self._free = (self._next + 1) % SLOTS, self._free - 1
        self.filled_bytes += at - start
        return LENGTH.pack(at - start), self.memory[start:at]

    def heard(self) -> None:
        """Read from the pipe what the peer has accepted and given back."""
        with suppress(BlockingIOError):
            count = len(os.read(self.pipe, MOST_SLOTS))
            if not self.is_accepted:
                self.is_accepted, count = True, count - 1 + SLOTS
            self._free = min(SLOTS, self._free + count)


@dataclass(eq=False)
class ReceiveSlots:
    """The receiving end. See `FilledSlots` in wire.reader."""

    memory: Bytes
    slots: int
    slot_bytes: int
    _pipe: int
    _next: int = 0

    def __post_init__(self) -> None:
        self.close = weakref.finalize(self, _close, self._pipe)

    @classmethod
    def accept(cls, offer: bytes) -> ReceiveSlots | None:
        """Return the slots of *offer*; None if they cannot be opened here. Raise ProtocolError if it is no offer."""
        found: MemoryOffer = decode(_offers, offer, "an offer of shared memory")
        within = 1 <= found.slots <= MOST_SLOTS and 1 <= found.slot_bytes <= MOST_SLOT_BYTES
        if not within:
            return None
        if sys.platform != "linux":
            return None
        import fcntl

        size_bytes, at_once = found.slots * found.slot_bytes, os.O_NONBLOCK | os.O_CLOEXEC
        try:
            memory = _open(found.pid, found.memory, f"/memfd:{NAME} ", os.O_RDONLY | at_once)
            try:
                # Only such memory has seals, and with these it cannot end before its mapping does.
                fixed = fcntl.F_SEAL_SHRINK & fcntl.fcntl(memory, fcntl.F_GET_SEALS)
                if not fixed or os.pread(memory, len(found.nonce) + 1, size_bytes) != found.nonce:
                    return None
                mapped = np.frombuffer(mmap.mmap(memory, size_bytes, prot=mmap.PROT_READ), np.uint8)
            finally:
                os.close(memory)
            pipe = _open(found.pid, found.pipe, "pipe:", os.O_WRONLY | at_once)
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                os.close(pipe)
                return None
        except (OSError, ValueError, OverflowError):  # of another machine, or another user
            return None
        found_slots = cls(mapped, found.slots, found.slot_bytes, pipe)
        found_slots.give_back()  # nothing yet: it accepts
        return found_slots

    def take(self) -> Bytes:
        """Return the memory of the next slot."""
        at, self._next = self._next * self.slot_bytes, (self._next + 1) % self.slots
        return self.memory[at : at + self.slot_bytes]

    def give_back(self) -> None:
        """Say that one slot more is free."""
        with suppress(OSError):  # its process has gone, which the stream will say
            if self.close.alive:
                os.write(self._pipe, b"\0")


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open(pid: int, descriptor: int, kind: str, mode: int) -> int:
    """Open *descriptor* of process *pid* if it is of the *kind*. Raise OSError."""
    path = f"/proc/{pid}/fd/{descriptor}"
    if not os.readlink(path).startswith(kind):
        raise FileNotFoundError(path)
    return os.open(path, mode)
