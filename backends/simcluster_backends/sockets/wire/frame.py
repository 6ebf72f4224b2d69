"""Frame definitions, byte for byte; simcluster_backends.sockets.wire.outgoing encodes, wire.reader decodes.

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
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import DTYPE_NAMES, PREAMBLE_BYTES, Message, MessageHeader, Payload
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


class FrameKind(enum.IntEnum):
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

    kind: FrameKind
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


def sealed(kind: FrameKind, header: bytes, seq: int, body_bytes: int = 0, body_crc: int = 0, flags: int = 0) -> bytes:
    """Return preamble and *header* of a frame, with their checksum."""
    before = _before_crc.pack(MAGIC, PROTOCOL_VERSION, kind, flags, len(header), body_bytes, seq)
    after = _after_crc.pack(body_crc, 0) + header
    return before + _crc.pack(crc32c(before + after)) + after


def header_crc(preamble: bytes, header: bytes) -> int:
    """Return the checksum of *preamble*, without its own field, and *header*."""
    return crc32c(header, crc32c(preamble[:CRC_AT] + preamble[AFTER_CRC:]))
