"""Encode outgoing frames in chunks: small frames whole, large tensors without a copy.

Large bodies may also go through shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from simcluster.payload import PREAMBLE_BYTES, Payload, body_bytes, encode_header
from simcluster_backends.sockets.wire.frame import (
    BODY_LIMIT_BYTES,
    CHUNK_BYTES,
    HEADER_LIMIT_BYTES,
    JOIN_BYTES,
    MESSAGE_LIMIT_BYTES,
    MORE,
    SHARED,
    SHARED_BYTES,
    Bytes,
    FrameKind,
    crc32c,
    octets,
    sealed,
)

Chunk = bytes | bytearray | memoryview
Span = tuple[int, int, int]
"""A span of a body: (index of its piece, first byte, last byte + 1)."""


class Slots(Protocol):
    """Shared memory that the peer reads: *count* slots of *slot_bytes* each.

    *filled_bytes* counts the bytes that have ever been written to slots.
    """

    count: int
    slot_bytes: int
    filled_bytes: int

    def has_room(self) -> bool:
        """Return whether the next slot can be filled."""

    def fill(self, pieces: list[Bytes], owner: OutgoingFrame | None = None) -> tuple[bytes, Bytes]:
        """Copy *pieces* of *owner* into the next slot; return its encoded length, and the copy.

        The length goes on the stream. The copy is valid until *owner*'s `move` is called.
        """


class OutgoingFrame:
    """An outgoing frame. It has no number until its first chunk is requested.

    If it is not *kept*, its body and its chunks are views of the caller's memory. They are valid
    until the caller runs again.
    """

    def __init__(
        self,
        kind: FrameKind,
        header: bytes = b"",
        body: Sequence[Bytes] = (),
        *,
        kept: bool = True,
        part_bytes: int = BODY_LIMIT_BYTES,
    ) -> None:
        self.kind = kind
        self.header = header
        self.kept = kept
        self._in_slots = False  # whether the body is in slots of shared memory, and so kept
        self.body = [piece for piece in body if len(piece)]
        self.body_bytes = sum(map(len, self.body))
        self.size_bytes = PREAMBLE_BYTES + len(header) + self.body_bytes
        self._part_bytes = part_bytes if kind is FrameKind.DATA else max(1, self.body_bytes)
        self.count = max(1, -(-self.body_bytes // self._part_bytes))
        self.wire_bytes = self.size_bytes + (self.count - 1) * PREAMBLE_BYTES
        if len(header) > HEADER_LIMIT_BYTES:
            raise ValueError(f"a header of {len(header)} bytes; at most {HEADER_LIMIT_BYTES}")

    def _preamble(self, seq: int, number: int, body_bytes: int, body_crc: int, flags: int = 0) -> bytes:
        """Return the preamble of part *number*, with sequence number *seq*."""
        kind, header = (FrameKind.PART, b"") if number else (self.kind, self.header)
        flags |= MORE if number + 1 < self.count else 0
        return sealed(kind, header, seq, body_bytes, body_crc, flags)

    def keep(self) -> None:
        """Copy the body, unless it is kept: the caller may change its memory from now on."""
        if not self.kept:
            self.kept = True
            self.body = [piece.copy() for piece in self.body]

    def move(self) -> None:
        """Copy the body if it is in slots, because they will be filled again."""
        if self._in_slots:
            self._in_slots, self.body = False, [piece.copy() for piece in self.body]

    def forget(self) -> None:
        """Drop the body, because the peer has all of it."""
        self._in_slots = False
        self.kept = True
        self.body = []

    def chunks(self, seq: int, slots: Slots | None = None) -> Iterator[Chunk]:
        """Yield the frame's bytes, with small pieces joined and large ones split. Number parts from
        *seq*.

        With *slots*, a large body goes through them, and a chunk is b"" while no slot is free. If
        the slots have room for the whole body, the frame is then kept there.
        """
        if slots is not None and self.body_bytes >= SHARED_BYTES:
            return self._shared(seq, slots)
        if self.wire_bytes <= JOIN_BYTES and self.count == 1:
            return iter((self._whole(seq),))
        return self._pieces(seq)

    def _whole(self, seq: int) -> bytes:
        """Return the whole frame as one copy, and keep the body in that copy."""
        crc = 0
        for piece in self.body:
            crc = crc32c(piece, crc)
        whole = b"".join((self._preamble(seq, 0, self.body_bytes, crc), *(piece.data for piece in self.body)))
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
                    if small:  # b"" would mean that the frame waits for a slot
                        yield small
                        small = bytearray()
                    while start < end - JOIN_BYTES:
                        at, start = start, min(start + CHUNK_BYTES, end)
                        yield self.body[index][at:start].data
                # Look the piece up again: `keep` may have replaced it while this generator waited.
                small += self.body[index][start:end].data
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
            self.kept = True
            self._in_slots = True
            self.body = copies

    def _parts(self) -> Iterator[list[Span]]:
        """Yield one list per part of the frame: the spans of the body in that part."""
        return _cut([(index, 0, length) for index, length in enumerate(map(len, self.body))], self._part_bytes)


def _cut(spans: list[Span], room_bytes: int) -> Iterator[list[Span]]:
    """Divide *spans* into lists of *room_bytes* each, and yield these; the last may be shorter.

    Yield one empty list if there are no *spans*.
    """
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


def acknowledgement(taken: int) -> bytes:
    """Return an ACK frame, which acknowledges that *taken* frames have been taken."""
    return sealed(FrameKind.ACK, b"", taken)


def offer(content: bytes) -> bytes:
    """Return an OFFER frame, which offers the shared memory that *content* describes."""
    return sealed(FrameKind.OFFER, content, 0)


def data_frame(
    tag: str, payload: Payload, part_bytes: int = BODY_LIMIT_BYTES, limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> OutgoingFrame:
    """Return a frame with *tag* and *payload*, in parts of *part_bytes*, without a copy of tensors.

    Raise TypeError or ValueError for content that cannot be sent.
    """
    header = encode_header(tag, payload)
    size_bytes = body_bytes(payload)
    pieces = []
    if size_bytes > limit_bytes:
        raise ValueError(f"message {tag!r}: {size_bytes} bytes of tensors, at most {limit_bytes}")
    for tensor in payload.tensors:
        if tensor.is_meta:
            raise TypeError(f"message {tag!r}: a {tensor.device.type} tensor has no bytes to send")
        pieces.append(octets(tensor.cpu().resolve_neg()))
    return OutgoingFrame(FrameKind.DATA, header, pieces, kept=False, part_bytes=part_bytes)
