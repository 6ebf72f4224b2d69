"""Slots of memory that two processes of one machine share: large bodies travel there, not over TCP.

The sending process makes an anonymous memory file and a pipe, and offers both on the stream. A peer
on the same machine opens them through /proc and accepts with a byte on the pipe. Any other peer
cannot open them, and does not answer. The sender fills the slots in turn and writes each length on
the stream. The receiver copies the content and returns the slot with a byte on the pipe. The file
has no name in any file system, so nothing is left behind, however the processes end.
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
"""The number and size of a sender's slots: 2 MiB per direction stay in the caches of two cores."""
MOST_SLOTS, MOST_SLOT_BYTES = 64, 4 * 1024**2
NAME = "simcluster"


class SharedMemory:
    """The shared memory of one connection, if its two ends can share any.

    Each end fills its own slots and empties the peer's. *on_free* is called when one of this end's
    slots is free again.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, queue: SendQueue, reader: FrameReader, on_free: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._reader = reader
        self._on_free = on_free
        self._own: SendSlots | None = None
        self._peers: ReceiveSlots | None = None
        self._offered = self._listens = False

    def offer(self) -> None:
        """Make slots and offer them to the peer. Later calls do nothing."""
        if self._offered:
            return
        self._offered, self._own = True, SendSlots.make()
        if self._own is not None:
            self.listen()
            self._queue.offer(self._own.offer)

    def listen(self) -> None:
        """Watch the pipe, and call *on_free* when the peer accepts the offer or returns a slot.

        While no slot is awaited, the pipe is not watched, which saves wake-ups.
        """
        if self._own is not None and not self._listens:
            self._listens = True
            self._loop.add_reader(self._own.pipe, self._heard, self._own)

    def accept(self, offer: bytes) -> None:
        """Accept the peer's first *offer*, if possible. Raise ProtocolError if it is invalid."""
        if self._peers is None:
            self._reader.slots = self._peers = ReceiveSlots.accept(offer)

    def close(self) -> None:
        """Stop sharing. A mapping stays until no tensor uses it."""
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
    """Return whether both ends of *transport* have the same address, as on one machine."""
    own, peers = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(own and peers and own[0] == peers[0])


class MemoryOffer(msgspec.Struct, frozen=True):
    """An offer: the descriptors of the *memory* and the *pipe* in process *pid*.

    The memory has *slots* slots of *slot_bytes*, followed by *nonce*, which proves its identity.
    """

    pid: int
    memory: int
    pipe: int
    nonce: bytes
    slots: int
    slot_bytes: int


_offers = msgspec.msgpack.Decoder(MemoryOffer)


@dataclass(eq=False)
class SendSlots:
    """The sending end of *offer*; see wire.outgoing.Slots.

    No slot is free until the peer has accepted the offer.
    """

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
        """Return new slots; None if the system does not support or provide them."""
        if sys.platform != "linux":
            return None
        import fcntl

        nonce, size_bytes = secrets.token_bytes(16), SLOTS * SLOT_BYTES
        files: tuple[int, ...] = ()
        try:
            memory, *_ = files = (os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING),)
            # Allocate all pages now: a missing page would later kill the process that touches it.
            os.posix_fallocate(memory, 0, size_bytes + len(nonce))
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
        """Copy *pieces* of *owner* into the next slot; return its encoded length, and the copy.

        The slot's previous owner first moves its body out.
        """
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
        """Read from the pipe whether the peer has accepted, and how many slots it has returned."""
        with suppress(BlockingIOError):
            count = len(os.read(self.pipe, MOST_SLOTS))
            if not self.is_accepted:  # the first byte accepts the offer: then all slots are free
                self.is_accepted, count = True, count - 1 + SLOTS
            self._free = min(SLOTS, self._free + count)


@dataclass(eq=False)
class ReceiveSlots:
    """The receiving end of an offer; see `FilledSlots` in wire.reader."""

    memory: Bytes
    slots: int
    slot_bytes: int
    _pipe: int
    _next: int = 0

    def __post_init__(self) -> None:
        self.close = weakref.finalize(self, _close, self._pipe)

    @classmethod
    def accept(cls, offer: bytes) -> ReceiveSlots | None:
        """Return the slots of *offer*; None if they cannot be opened here.

        Raise ProtocolError if *offer* cannot be decoded.
        """
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
                # Only memory files have seals. This one ensures that the file never shrinks: a read
                # beyond its end would kill this process.
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
        except (OSError, ValueError, OverflowError):  # from another machine, or another user
            return None
        found_slots = cls(mapped, found.slots, found.slot_bytes, pipe)
        found_slots.give_back()  # the first byte is the acceptance
        return found_slots

    def take(self) -> Bytes:
        """Return the memory of the next slot."""
        at, self._next = self._next * self.slot_bytes, (self._next + 1) % self.slots
        return self.memory[at : at + self.slot_bytes]

    def give_back(self) -> None:
        """Notify the sender that one more slot is free."""
        with suppress(OSError):  # its process is gone: the stream will report that
            if self.close.alive:
                os.write(self._pipe, b"\0")


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open(pid: int, descriptor: int, kind: str, mode: int) -> int:
    """Open *descriptor* of process *pid*. Raise OSError if it is missing, or not of *kind*."""
    path = f"/proc/{pid}/fd/{descriptor}"
    if not os.readlink(path).startswith(kind):
        raise FileNotFoundError(path)
    return os.open(path, mode)
