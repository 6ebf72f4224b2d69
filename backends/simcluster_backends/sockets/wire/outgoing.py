"""Encode outgoing frames, in chunks: small ones whole, large tensors from where they are, or through shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

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

    def fill(self, pieces: list[Bytes], owner: OutgoingFrame | None = None) -> tuple[bytes, Bytes]:
        """Copy *pieces* of *owner* into the next slot; return what the stream says of it, and the copy.

        The copy is valid until *owner* is asked to `move`.
        """


class OutgoingFrame:
    """An outgoing frame. It gets its number when its first chunk is requested: a frame that never left has none.

    A body that is not *kept*, like each chunk of it, is memory owned elsewhere: valid until its owner runs again.
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
        self.kind, self.header, self.kept = kind, header, kept
        self._in_slots = False  # its body is, which is then kept
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
                    if small:  # an empty chunk would mean that the frame waits
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


def acknowledgement(taken: int) -> bytes:
    """Return the frame that says that *taken* frames have been taken."""
    return sealed(FrameKind.ACK, b"", taken)


def offer(content: bytes) -> bytes:
    """Return the frame that offers shared memory."""
    return sealed(FrameKind.OFFER, content, 0)


def data_frame(
    tag: str, payload: Payload, part_bytes: int = BODY_LIMIT_BYTES, limit_bytes: int = MESSAGE_LIMIT_BYTES
) -> OutgoingFrame:
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
    return OutgoingFrame(FrameKind.DATA, header, pieces, kept=False, part_bytes=part_bytes)
