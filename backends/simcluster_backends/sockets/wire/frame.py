"""The format of frames, byte for byte: wire.outgoing encodes them, wire.reader decodes them.

A frame is a preamble of 40 bytes, a header and a body:

    magic 4s | version u8 | kind u8 | flags u16 | header_len u32 | body_len u64 | seq u64
    | header crc32c u32 | body crc32c u32 | reserved u32

all little-endian. The header's checksum also covers the preamble, except its own field. So no
length is trusted, and no memory is allocated, before this checksum is verified. `seq` rises by one
per frame and direction, which exposes repeated, missing and reordered frames. It starts from 0
after the handshake, whose frames have their own numbers. An ACK has no number: its `seq` is the
number of frames that its sender has taken. Tensors travel raw, and are received straight into the
algorithm's memory.

A message with tensors beyond the frame limit travels in parts. Its DATA frame has the flag MORE.
PART frames follow, with nothing in between, and all but the last have MORE. The body's checksum of
each part covers the message's body so far.

Processes on one machine may share memory. An OFFER, which has no number, describes the memory: see
simcluster_backends.sockets.net.shared_memory. Large bodies then travel in slots of this memory. The
frame of such a body has the flag SHARED and no checksum of the body. In place of the body come the
lengths of the slots' contents, in bytes, each a u32.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import DTYPE_NAMES, PREAMBLE_BYTES, Message, MessageHeader, Payload
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

Bytes = npt.NDArray[np.uint8]
"""A one-dimensional view of memory owned elsewhere."""

MAGIC = b"simc"
HEADER_LIMIT_BYTES = 64 * 1024
BODY_LIMIT_BYTES = 256 * 1024**2
"""The limit on the body of a frame, unless the run sets a lower one."""
MESSAGE_LIMIT_BYTES = 64 * 1024**3
"""The limit on all parts of a message together, if the receiver's memory is unknown."""
MORE, SHARED = 1, 2
CONTROL_LIMIT_BYTES = 64 * 1024**2
HANDSHAKE_LIMIT_BYTES = 256
JOIN_BYTES = 256 * 1024
"""Pieces below this size are copied together, instead of being written one by one."""
CHUNK_BYTES = 512 * 1024
"""The size of one write: it fits into a core's private cache, and is worth a system call."""
LENGTH = struct.Struct("<I")
"""The format of the length of a slot's content, which the stream has in place of the content."""
SHARED_BYTES = 128 * 1024
"""The smallest body that travels in shared memory: for smaller ones the stream is as fast."""

_layout = struct.Struct("<4sBBHIQQIII")
assert _layout.size == PREAMBLE_BYTES
_before_crc, _crc, _after_crc = map(struct.Struct, ("<4sBBHIQQ", "<I", "<II"))
CRC_AT, AFTER_CRC = _before_crc.size, _before_crc.size + _crc.size
"""The first byte of the header's checksum in a preamble, and the first byte after it."""


class FrameKind(enum.IntEnum):
    """The kind of a frame.

    The header of HANDSHAKE is a handshake message; the body of CONTROL is a control message.
    """

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
    """A tensor, *place*, into which the tensor of the next message with *tag* is read.

    *message* is that message, once it has arrived.
    """

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
    """A complete received frame, of *size_bytes* in all, with all parts of its message.

    Only a DATA frame has *message* and *tensors*; *body_crc* is the verified checksum of its body.
    If *landing* is set, the tensor was read into the landing's tensor. Only a CONTROL frame has a
    *body*. *acknowledged* is the number in an ACK. *is_shared* means that the body, or its end,
    came through shared memory.
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
    """Return the bytes of a CPU *tensor*: a view of its memory, or a copy if not contiguous."""
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
    """Return *data*, decoded. Raise ProtocolError, naming *what*, for any invalid bytes."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError, MemoryError) as error:
        raise ProtocolError(f"{what} cannot be decoded: {type(error).__name__}: {error}") from None


def sealed(kind: FrameKind, header: bytes, seq: int, body_bytes: int = 0, body_crc: int = 0, flags: int = 0) -> bytes:
    """Return the encoded preamble and *header* of a frame, with their checksum."""
    before = _before_crc.pack(MAGIC, PROTOCOL_VERSION, kind, flags, len(header), body_bytes, seq)
    after = _after_crc.pack(body_crc, 0) + header
    return before + _crc.pack(crc32c(before + after)) + after


def header_crc(preamble: bytes, header: bytes) -> int:
    """Return the checksum of *preamble*, without its own field, and *header*."""
    return crc32c(header, crc32c(preamble[:CRC_AT] + preamble[AFTER_CRC:]))
