"""The memory into which a frame's body is read: tensors as its header describes them, or bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np
import torch

from simcluster.errors import ProtocolError
from simcluster.payload import DTYPES, MAX_DIMENSIONS, PREAMBLE_BYTES, MessageHeader
from simcluster.process.buffers import BUFFERS
from simcluster_backends.sockets.wire.frame import (
    MORE,
    SHARED,
    Bytes,
    Frame,
    FrameKind,
    Landing,
    Preamble,
    decode,
    octets,
)

_header_decoder = msgspec.msgpack.Decoder(MessageHeader)


@dataclass(slots=True)
class Body:
    """A body in flight: *parts* are the buffers to fill, in order.

    Buffer number *part* holds *filled* bytes so far. *left* bytes of this frame are still to come,
    through shared memory if *is_shared*. *rest* bytes of the message follow in later frames.
    """

    frame: Frame
    parts: list[Bytes]
    crc_expected: int
    left: int
    rest: int = 0
    crc: int = 0
    part: int = 0
    filled: int = 0
    owned: bytearray = field(default_factory=bytearray)
    is_shared: bool = False

    @property
    def room(self) -> int:
        """The number of bytes of this frame that still fit into the current buffer."""
        return min(len(self.parts[self.part]) - self.filled, self.left)

    def begin_part(self, preamble: Preamble) -> None:
        """Continue with the next frame of the message. Raise ProtocolError if it does not fit."""
        self.left, self.crc_expected = preamble.body_len, preamble.body_crc
        self.is_shared = preamble.flags & SHARED != 0
        self.rest = rest_after(self.rest, preamble)

    def move(self) -> None:
        """Move the body, which may be incomplete, to newly allocated memory, and keep the bytes
        received so far. The body must have one tensor.
        """
        tensor = torch.empty_like(self.frame.tensors[0])
        copy = octets(tensor)
        if self.part < len(self.parts):
            copy[: self.filled] = self.parts[0][: self.filled]
        else:
            copy[:] = self.parts[0]
        self.parts = [copy]
        self.frame.tensors = (tensor,)
        self.frame.landing = None


def rest_after(expected: int, preamble: Preamble) -> int:
    """Return how many of *expected* bytes follow the frame of *preamble* in later frames.

    Raise ProtocolError if the frame's body cannot be a part of *expected* bytes.
    """
    rest = expected - preamble.body_len
    if rest < 0 or (preamble.flags & MORE != 0) != (rest > 0) or (rest and not preamble.body_len):
        flags = f" with flags {preamble.flags}" if preamble.flags else ""
        raise ProtocolError(f"tensors of {expected} bytes in a body of {preamble.body_len}{flags}")
    return rest


def prepare(preamble: Preamble, header: bytes, landings: list[Landing], most_bytes: int) -> Body:
    """Check *header* and return the memory for the body. A message has at most *most_bytes*.

    The first of *landings* with the message's tag is used up. If the message's tensor fits there,
    it is read into that landing's tensor. Raise ProtocolError if *header* is invalid, if the
    message is too long, or if there is no memory for it.
    """
    size_bytes = PREAMBLE_BYTES + preamble.header_len + preamble.body_len
    if preamble.kind == FrameKind.DATA:
        message: MessageHeader = decode(_header_decoder, header, "a message header")
        total = sum([_bytes_of(head.dtype, tuple(head.shape)) for head in message.tensors])
        rest = rest_after(total, preamble)
        if total > most_bytes:
            raise ProtocolError(f"a message of {total} bytes; at most {most_bytes}")
        landing = None
        if landings:
            landing = next((landing for landing in landings if landing.tag == message.tag), None)
        if landing is not None:
            landings.remove(landing)
            landing = landing if landing.fits(message) else None
        try:
            tensors = (
                tuple([BUFFERS.empty(head.shape, DTYPES[head.dtype]) for head in message.tensors])
                if landing is None
                else (landing.place,)
            )
        except (RuntimeError, MemoryError, OSError) as error:
            raise ProtocolError(f"no memory for a body of {total} bytes: {error}") from None
        parts = [part for part in map(octets, tensors) if len(part)]
        frame = Frame(FrameKind.DATA, header, b"", message, tensors, size_bytes + rest, 0, landing)
        is_shared = preamble.flags & SHARED != 0
        return Body(frame, parts, preamble.body_crc, preamble.body_len, rest, is_shared=is_shared)
    kind = FrameKind(preamble.kind)
    owned = bytearray(preamble.body_len)
    parts = [np.frombuffer(owned, dtype=np.uint8)] if owned else []
    acknowledged = preamble.seq if kind is FrameKind.ACK else 0
    frame = Frame(kind, header, size_bytes=size_bytes, acknowledged=acknowledged)
    return Body(frame, parts, preamble.body_crc, preamble.body_len, owned=owned)


@lru_cache(maxsize=4096)
def _bytes_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Return the number of bytes of a tensor. Raise ProtocolError if it is invalid.

    Results are cached, because a run sends the same shapes again and again.
    """
    if dtype not in DTYPES:
        raise ProtocolError(f"a tensor of dtype {dtype[:40]!r}; expected one of {', '.join(DTYPES)}")
    if len(shape) > MAX_DIMENSIONS:
        raise ProtocolError(f"a tensor of {len(shape)} dimensions; at most {MAX_DIMENSIONS}")
    if any(not 0 <= length < 2**31 for length in shape):
        raise ProtocolError(f"a tensor of shape {list(shape)}; lengths are 0 to 2**31 - 1")
    return math.prod(shape) * DTYPES[dtype].itemsize
