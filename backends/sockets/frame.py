"""What a frame is, byte for byte, and how one is written; backends.sockets.framing reads them.

This file knows the layout of a frame and the limits on one. It must not know sockets, loops, keys or nodes.

A frame is a preamble of 40 bytes, a header and a body:

    magic 4s | version u8 | kind u8 | flags u16 | header_len u32 | body_len u64 | seq u64
    | header crc32c u32 | body crc32c u32 | reserved u32

all little-endian. The header's checksum covers the preamble too (its own field apart), so no length is
believed, and nothing is allocated, before it holds. `seq` rises by one per frame and direction, from 0: a
frame that is repeated, left out or moved is found out. Tensors travel raw and are received into the very
memory that the algorithm gets.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from backends.sockets.landing import Landing
from backends.sockets.protocol import PROTOCOL_VERSION
from simcluster.errors import ProtocolError
from simcluster.payload import PREAMBLE_BYTES, MessageHeader, Payload, body_bytes, encode_header

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""One-dimensional view of somebody's memory."""

MAGIC = b"simc"
HEADER_LIMIT_BYTES = 64 * 1024
BODY_LIMIT_BYTES = 1024**3
CONTROL_LIMIT_BYTES = 64 * 1024**2
HANDSHAKE_LIMIT_BYTES = 256
JOIN_BYTES = 256 * 1024
"""Copied together rather than sent piece by piece."""
CHUNK_BYTES = 512 * 1024
"""Written at once: fits into a core's own cache, and is worth a call of the system."""

_layout = struct.Struct("<4sBBHIQQIII")
assert _layout.size == PREAMBLE_BYTES


class Kind(enum.IntEnum):
    """What a frame is for. HANDSHAKE's header is a handshake message, CONTROL's body a control message."""

    HANDSHAKE = 1
    DATA = 2
    CONTROL = 3
    GOODBYE = 4


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
    def read(cls, data: bytes) -> Preamble:
        return cls(*_layout.unpack(data))


class OtherVersion(ProtocolError):
    """A frame of another version of this protocol."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole frame that arrived. *tensors* only with DATA; *body* only with CONTROL; *size_bytes* counts all of it.

    *body_crc* is the checksum of a DATA frame's body, which has been found to be right; *landing* is where it was read
    into, if that was named before.
    """

    kind: Kind
    header: bytes
    body: bytes = b""
    message: MessageHeader | None = None
    tensors: tuple[Tensor, ...] = ()
    size_bytes: int = 0
    body_crc: int = 0
    landing: Landing | None = None


def octets(tensor: Tensor) -> Bytes:
    """The memory of a contiguous CPU *tensor* of any dtype and shape, as bytes."""
    view: Bytes = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return view


def as_octets(data: bytes) -> Bytes:
    """*data* as the body of a frame."""
    return np.frombuffer(data, dtype=np.uint8)


def crc32c(chunk: bytes | Bytes, crc: int = 0) -> int:
    value: int = google_crc32c.extend(crc, chunk)
    return value


def decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes, what: str) -> Any:
    """Decodes *data*; whatever a decoder raises on hostile bytes becomes a ProtocolError."""
    try:
        return decoder.decode(data)
    except (
        msgspec.MsgspecError,
        UnicodeError,
        RecursionError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ProtocolError(f"{what} cannot be decoded: {type(error).__name__}: {error}") from None


class Outgoing:
    """One frame on its way out. Its number is given when its first chunk is asked for: what never left has none.

    A body that is not *kept* is somebody else's memory, and so is a chunk of it: good until its owner has a turn.
    `keep` copies what has not been given out.
    """

    def __init__(self, kind: Kind, header: bytes = b"", body: Sequence[Bytes] = (), *, kept: bool = True) -> None:
        self.kind, self.header, self.kept = kind, header, kept
        self._begun = 0, 0  # of the body: which piece, and how much of it
        self.body = [piece for piece in body if len(piece)]
        self.body_bytes = sum(len(piece) for piece in self.body)
        self.size_bytes = PREAMBLE_BYTES + len(header) + self.body_bytes
        if len(header) > HEADER_LIMIT_BYTES:
            raise ValueError(f"a header of {len(header)} bytes; at most {HEADER_LIMIT_BYTES}")

    def preamble(self, seq: int) -> bytes:
        """The preamble under number *seq*."""
        body_crc = 0
        for piece in self.body:
            body_crc = crc32c(piece, body_crc)
        sizes = len(self.header), self.body_bytes
        fields = Preamble(MAGIC, PROTOCOL_VERSION, self.kind, 0, *sizes, seq, 0, body_crc, 0)
        return _layout.pack(*fields._replace(header_crc=header_crc(_layout.pack(*fields), self.header)))

    def keep(self) -> None:
        """From now on the body may change: what has not been given out as a chunk is copied."""
        if self.kept:
            return
        self.kept = True
        index, start = self._begun
        for later in range(index, len(self.body)):
            copy = np.empty_like(self.body[later])
            copy[start:] = self.body[later][start:]
            self.body[later], start = copy, 0

    def chunks(self, seq: int) -> Iterator[bytes | bytearray | memoryview]:
        """The frame's bytes under number *seq*: small pieces joined, large ones cut."""
        small = bytearray(self.preamble(seq) + self.header)
        for index, length in enumerate(map(len, self.body)):
            end = 0
            if len(small) + length > JOIN_BYTES:
                yield small
                small = bytearray()
                for start in range(0, length - JOIN_BYTES, CHUNK_BYTES):
                    end = min(start + CHUNK_BYTES, length)
                    self._begun = index, end
                    yield self.body[index][start:end].data
            small += self.body[index][end:].data  # looked up again: it may have been kept meanwhile
            self._begun = index + 1, 0
        if small:
            yield small


def data_frame(tag: str, payload: Payload, limit_bytes: int = BODY_LIMIT_BYTES) -> Outgoing:
    """*payload* under *tag*; its tensors are not copied. Raises TypeError or ValueError on what cannot travel."""
    header = encode_header(tag, payload)
    for tensor in payload.tensors:
        if tensor.is_meta:
            raise TypeError(f"message {tag!r}: a {tensor.device.type} tensor has no bytes to send")
    size_bytes = body_bytes(payload)
    if size_bytes > limit_bytes:
        raise ValueError(f"message {tag!r}: {size_bytes} bytes of tensors, at most {limit_bytes}")
    return Outgoing(Kind.DATA, header, [octets(tensor.cpu().resolve_neg()) for tensor in payload.tensors], kept=False)


def header_crc(preamble: bytes, header: bytes) -> int:
    """The checksum over *preamble*, its own field apart, and *header*."""
    return crc32c(header, crc32c(preamble[:28] + preamble[32:]))
