"""Frame definitions, byte for byte, and encoding; simcluster_backends.sockets.wire.reader decodes.

A frame is a preamble of 40 bytes, a header and a body:

    magic 4s | version u8 | kind u8 | flags u16 | header_len u32 | body_len u64 | seq u64
    | header crc32c u32 | body crc32c u32 | reserved u32

all little-endian. The header's checksum also covers the preamble (except its own field), so no length is trusted, and
nothing allocated, before it has been verified. `seq` rises by one per frame and direction, from 0 after the handshake,
whose frames are numbered separately, which exposes repeated, missing and reordered frames. An ACK has no number: its
`seq` says how many frames its sender has taken. Tensors travel raw and are received straight into the algorithm's
memory.

A message with tensors beyond the frame limit travels in parts: its DATA frame has the flag MORE, and PART frames follow
with nothing in between, all but the last with MORE. The body's checksum covers the message's body so far.

Processes of one machine may share memory (OFFER, without number; simcluster_backends.sockets.net.shared_memory). A
large body is then in its slots: the frame has the flag SHARED and no checksum of the body, and in the body's place come
the lengths in bytes, u32, of what the slots hold, one after the other.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import DTYPE_NAMES, PREAMBLE_BYTES, Message, MessageHeader, Payload, body_bytes, encode_header
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""A one-dimensional view of memory owned elsewhere."""

MAGIC = b"simc"
HEADER_LIMIT_BYTES = 64 * 1024
BODY_LIMIT_BYTES = 256 * 1024**2
"""Limit for one frame, unless the run sets a lower one."""
MESSAGE_LIMIT_BYTES = 64 * 1024**3
"""Limit for all parts of a message, if the receiver's memory is unknown."""
MORE, SHARED = 1, 2
CONTROL_LIMIT_BYTES = 64 * 1024**2
HANDSHAKE_LIMIT_BYTES = 256
JOIN_BYTES = 256 * 1024
"""Smaller pieces are copied together rather than sent one by one."""
CHUNK_BYTES = 512 * 1024
"""Written at once: fits into a core's private cache, and is worth a system call."""
LENGTH = struct.Struct("<I")
"""On the stream, in place of the content of a slot."""
SHARED_BYTES = 128 * 1024
"""Smaller bodies travel on the stream even where memory is shared."""

_layout = struct.Struct("<4sBBHIQQIII")
assert _layout.size == PREAMBLE_BYTES
_before_crc, _crc, _after_crc = map(struct.Struct, ("<4sBBHIQQ", "<I", "<II"))
CRC_AT, AFTER_CRC = _before_crc.size, _before_crc.size + _crc.size
"""Where the header's checksum is in a preamble."""


class Kind(enum.IntEnum):
    """The kind of a frame. HANDSHAKE's header is a handshake message, CONTROL's body a control message."""

    HANDSHAKE = 1
    DATA = 2
    CONTROL = 3
    GOODBYE = 4
    PART = 5
    ACK = 6
    OFFER = 7


class Preamble(NamedTuple):
    """A frame's first 40 bytes."""

    magic: bytes
    version: int
    kind: int
    flags: int
    header_len: int
    body_len: int
    seq: int
    header_crc: int
    body_crc: int
    reserved: int

    @classmethod
    def read(cls, data: bytes | memoryview, start: int = 0) -> Preamble:
        return cls._make(_layout.unpack_from(data, start))


class OtherVersion(ProtocolError):
    """A frame of another protocol version."""


@dataclass(slots=True, eq=False)
class Landing:
    """*place* is for the tensor of the next message with *tag*; *message* is that message, once it has arrived."""

    tag: str
    place: Tensor
    message: Message | None = None

    def fits(self, header: MessageHeader) -> bool:
        """Return whether *header* announces one tensor with the dtype and shape of *place*."""
        only, place = header.tensors[0] if len(header.tensors) == 1 else None, self.place
        return only is not None and only.dtype == DTYPE_NAMES[place.dtype] and only.shape == list(place.shape)

    def leave(self) -> None:
        """Move the received message out of *place*."""
        if self.message is not None:
            self.message.payload = Payload((self.place.clone(),), self.message.payload.values)


@dataclass(slots=True)
class Frame:
    """A complete received frame. *tensors* only with DATA; *body* only with CONTROL; *size_bytes* counts all of it.

    *body_crc* is the verified checksum of a DATA frame's body; its tensor was read into *landing*, if that is given.
    *acknowledged* is the number in an ACK. *is_shared*: its body, or the end of it, came through shared memory.
    """

    kind: Kind
    header: bytes
    body: bytes = b""
    message: MessageHeader | None = None
    tensors: tuple[Tensor, ...] = ()
    size_bytes: int = 0
    body_crc: int = 0
    landing: Landing | None = None
    acknowledged: int = 0
    is_shared: bool = False


def octets(tensor: Tensor) -> Bytes:
    """Return the memory of a CPU *tensor* of any dtype and shape, or of a copy if it is not contiguous, as bytes."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:  # numpy has no such type
        tensor = tensor.view(torch.int16)
    view = tensor.numpy()
    if view.ndim != 1 or not tensor.is_contiguous():
        view = np.ascontiguousarray(view).reshape(-1)
    found: Bytes = view.view(np.uint8)
    return found


def as_octets(data: bytes) -> Bytes:
    """Return *data* as the body of a frame."""
    return np.frombuffer(data, dtype=np.uint8)


def crc32c(chunk: bytes | Bytes, crc: int = 0) -> int:
    value: int = google_crc32c.extend(crc, chunk)
    return value


def decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes, what: str) -> Any:
    """Decode *data*; any exception that hostile bytes cause becomes a ProtocolError."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError, MemoryError) as error:
        raise ProtocolError(f"{what} cannot be decoded: {type(error).__name__}: {error}") from None


Chunk: TypeAlias = bytes | bytearray | memoryview
Span: TypeAlias = tuple[int, int, int]
"""(index of a piece of the body, first byte, last byte + 1)"""


class Slots(Protocol):
    """*count* pieces of memory that the peer reads. *filled_bytes* counts all contents."""

    count: int
    slot_bytes: int
    filled_bytes: int

    def has_room(self) -> bool:
        """Return whether the next slot can be filled."""

    def fill(self, pieces: list[Bytes], owner: Outgoing | None = None) -> tuple[bytes, Bytes]:
        """Copy *pieces* of *owner* into the next slot; return what the stream says of it, and the copy.

        The copy is valid until *owner* is asked to `move`.
        """


class Outgoing:
    """An outgoing frame. It gets its number when its first chunk is requested: a frame that never left has none.

    A body that is not *kept*, like each chunk of it, is memory owned elsewhere: valid until its owner runs again.
    """

    def __init__(
        self,
        kind: Kind,
        header: bytes = b"",
        body: Sequence[Bytes] = (),
        *,
        kept: bool = True,
        part_bytes: int = BODY_LIMIT_BYTES,
    ) -> None:
        self.kind, self.header, self.kept = kind, header, kept
        self._in_slots = False  # its body is, which is then kept
        self.body = [piece for piece in body if len(piece)]
        self.body_bytes = sum(map(len, self.body))
        self.size_bytes = PREAMBLE_BYTES + len(header) + self.body_bytes
        self._part_bytes = part_bytes if kind is Kind.DATA else max(1, self.body_bytes)
        self.count = max(1, -(-self.body_bytes // self._part_bytes))
        self.wire_bytes = self.size_bytes + (self.count - 1) * PREAMBLE_BYTES
        if len(header) > HEADER_LIMIT_BYTES:
            raise ValueError(f"a header of {len(header)} bytes; at most {HEADER_LIMIT_BYTES}")

    def _preamble(self, seq: int, number: int, body_bytes: int, body_crc: int, flags: int = 0) -> bytes:
        """Return the preamble of part *number*, with sequence number *seq*."""
        kind, header = (Kind.PART, b"") if number else (self.kind, self.header)
        flags |= MORE if number + 1 < self.count else 0
        return sealed(kind, header, seq, body_bytes, body_crc, flags)

    def keep(self) -> None:
        """Copy the body: it may change from now on, and the frame may have to leave again."""
        if not self.kept:
            self.kept = True
            self.body = [piece.copy() for piece in self.body]

    def move(self) -> None:
        """Copy the body if it is in slots: they are filled again."""
        if self._in_slots:
            self._in_slots, self.body = False, [piece.copy() for piece in self.body]

    def forget(self) -> None:
        """Forget the body: the peer has all of it."""
        self._in_slots, self.kept, self.body = False, True, []

    def chunks(self, seq: int, slots: Slots | None = None) -> Iterator[Chunk]:
        """Yield the frame's bytes, its parts numbered from *seq* on: small pieces joined, large ones cut.

        With *slots* the body of a large frame goes through them, and the chunk is b"" while none is free. If all of it
        has room there, they keep it.
        """
        if slots is not None and self.body_bytes >= SHARED_BYTES:
            return self._shared(seq, slots)
        if self.wire_bytes <= JOIN_BYTES and self.count == 1:
            return iter((self._whole(seq),))
        return self._pieces(seq)

    def _whole(self, seq: int) -> bytes:
        """Return all of the frame, a copy, which is kept."""
        crc = 0
        for piece in self.body:
            crc = crc32c(piece, crc)
        whole = b"".join((self._preamble(seq, 0, self.body_bytes, crc), *self.body))
        if not self.kept:
            self.kept, self.body = True, [np.frombuffer(whole, np.uint8, offset=len(whole) - self.body_bytes)]
        return whole

    def _pieces(self, seq: int) -> Iterator[Chunk]:
        crc = 0
        for number, spans in enumerate(self._parts()):
            for index, start, end in spans:
                crc = crc32c(self.body[index][start:end], crc)
            small = bytearray(self._preamble(seq + number, number, sum(end - start for _, start, end in spans), crc))
            for index, start, end in spans:
                if len(small) + end - start > JOIN_BYTES:
                    yield small
                    small = bytearray()
                    while start < end - JOIN_BYTES:
                        at, start = start, min(start + CHUNK_BYTES, end)
                        yield self.body[index][at:start].data
                small += self.body[index][start:end].data  # looked up again: `keep` may have replaced it
            if small:
                yield small

    def _shared(self, seq: int, slots: Slots) -> Iterator[Chunk]:
        copies: list[Bytes] = []
        for number, spans in enumerate(self._parts()):
            said = self._preamble(seq + number, number, sum(end - start for _, start, end in spans), 0, SHARED)
            for slot in _cut(spans, slots.slot_bytes):
                while not slots.has_room():
                    yield said
                    said = b""
                length, copy = slots.fill([self.body[index][start:end] for index, start, end in slot], self)
                copies.append(copy)
                yield said + length
                said = b""
        if not self.kept and len(copies) <= slots.count:
            self.kept, self._in_slots, self.body = True, True, copies

    def _parts(self) -> Iterator[list[Span]]:
        """Yield the spans of the body for each part."""
        return _cut([(index, 0, length) for index, length in enumerate(map(len, self.body))], self._part_bytes)


def _cut(spans: list[Span], room_bytes: int) -> Iterator[list[Span]]:
    """Yield *spans* in lists of *room_bytes*, the last one with the rest; one empty list if there are none."""
    part: list[Span] = []
    room = room_bytes
    for index, start, length in spans:
        while start < length:
            if not room:
                yield part
                part, room = [], room_bytes
            end = min(length, start + room)
            part.append((index, start, end))
            room, start = room - (end - start), end
    yield part


def sealed(kind: Kind, header: bytes, seq: int, body_bytes: int = 0, body_crc: int = 0, flags: int = 0) -> bytes:
    """Return preamble and *header* of a frame, with their checksum."""
    before = _before_crc.pack(MAGIC, PROTOCOL_VERSION, kind, flags, len(header), body_bytes, seq)
    after = _after_crc.pack(body_crc, 0) + header
    return before + _crc.pack(crc32c(before + after)) + after


def acknowledgement(taken: int) -> bytes:
    """Return the frame that says that *taken* frames have been taken."""
    return sealed(Kind.ACK, b"", taken)


def offer(content: bytes) -> bytes:
    """Return the frame that offers shared memory."""
    return sealed(Kind.OFFER, content, 0)


def data_frame(
    tag: str, payload: Payload, part_bytes: int = BODY_LIMIT_BYTES, limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> Outgoing:
    """Return *payload* with *tag* as a frame in parts of at most *part_bytes*; its tensors are not copied.

    Raise TypeError or ValueError for content that cannot be sent.
    """
    header, size_bytes, pieces = encode_header(tag, payload), body_bytes(payload), []
    if size_bytes > limit_bytes:
        raise ValueError(f"message {tag!r}: {size_bytes} bytes of tensors, at most {limit_bytes}")
    for tensor in payload.tensors:
        if tensor.is_meta:
            raise TypeError(f"message {tag!r}: a {tensor.device.type} tensor has no bytes to send")
        pieces.append(octets(tensor.cpu().resolve_neg()))
    return Outgoing(Kind.DATA, header, pieces, kept=False, part_bytes=part_bytes)


def header_crc(preamble: bytes, header: bytes) -> int:
    """Return the checksum of *preamble*, without its own field, and *header*."""
    return crc32c(header, crc32c(preamble[:CRC_AT] + preamble[AFTER_CRC:]))
