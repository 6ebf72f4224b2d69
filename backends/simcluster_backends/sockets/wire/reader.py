"""Decode frames, in place and within limits. This code is exposed to anything on the network."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import PREAMBLE_BYTES
from simcluster_backends.sockets.wire import frame as framing
from simcluster_backends.sockets.wire.body import Body, prepare
from simcluster_backends.sockets.wire.frame import (
    AFTER_CRC,
    CRC_AT,
    LENGTH,
    MORE,
    SHARED,
    Bytes,
    Frame,
    FrameKind,
    Landing,
    Preamble,
    crc32c,
)
from simcluster_backends.sockets.wire.protocol import PROTOCOL_VERSION

READ_AHEAD_BYTES = 64 * 1024
DIRECT_BYTES = 512 * 1024
"""The limit on one read into a large tensor: its bytes stay in a core's cache for the checksum."""

WITHOUT_NUMBER = (FrameKind.ACK, FrameKind.OFFER)

TLS_RECORDS = (b"\x15", b"\x16")  # an alert, and the first record of a handshake
TLS_RECORD_BYTES = 3


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The limits of a reader: on the body of a frame, and on all parts of a message together."""

    body_bytes: int = framing.BODY_LIMIT_BYTES
    message_bytes: int = framing.MESSAGE_LIMIT_BYTES


USUAL = FrameLimits()


class FilledSlots(Protocol):
    """The slots of shared memory that the peer fills in turn."""

    slot_bytes: int

    def take(self) -> Bytes:
        """Return the memory of the next slot."""

    def give_back(self) -> None:
        """Return the slot that was taken last to the peer, which may fill it again."""


class FrameReader:
    """A decoder of frames: handshake frames until *is_open* is set, then others within *limits*.

    It fits asyncio's BufferedProtocol. Write bytes into `buffer()`, call `received(n)` for n bytes,
    and take each complete frame with `next_frame()`. Bytes of a large tensor go straight there.
    Everything else goes through a small read-ahead buffer, so that a small message costs one read.
    Any violation raises ProtocolError. The connection is then unusable: each later call raises it
    again.
    """

    def __init__(self, limits: FrameLimits = USUAL, *, is_open: bool = False) -> None:
        self.limits = limits
        self.is_open = is_open
        # Room for an incomplete header, of the greatest length, and for another read after it.
        self._ahead: Bytes = np.empty(READ_AHEAD_BYTES + framing.HEADER_LIMIT_BYTES, dtype=np.uint8)
        self._view = self._ahead.data
        self._start = self._end = 0
        self._body: Body | None = None
        self._in_frame = self._direct = False
        self._seq = 0  # the number of the next frame
        self.taken = 0  # the number of returned frames; each part of a message counts
        self._error: ProtocolError | None = None
        self._landings: list[Landing] = []  # in order of registration
        self.slots: FilledSlots | None = None
        self.digests = True  # whether to compute checksums of bodies in shared memory

    def open(self, previous: FrameReader | None = None) -> None:
        """Accept all kinds of frames, numbered from 0, or from where *previous* stopped."""
        self.is_open = True
        self._seq = 0
        self.taken = 0
        if previous is None:
            return
        self._seq = self.taken = previous.taken
        self.digests = previous.digests
        body, previous._body = previous._body, None
        self._landings = previous._landings
        if body is not None and body.frame.landing is not None:
            self._landings.insert(0, body.frame.landing)  # the peer resends its message

    @property
    def between_frames(self) -> bool:
        """Whether the stream is at a boundary of frames, where it may end."""
        return self._body is None and self._start == self._end

    def land(self, tag: str, place: Tensor) -> Landing | None:
        """Read the next message with *tag* into *place*, and return the Landing.

        Return None if a message with *tag* is already being read.
        """
        message = self._body.frame.message if self._body is not None else None
        if message is not None and message.tag == tag:
            return None
        self._landings.append(landing := Landing(tag, place))
        return landing

    def take_back(self, landing: Landing) -> None:
        """Return the memory of *landing* to its owner; data read into it moves elsewhere."""
        with suppress(ValueError):  # a landing that is or was in use is not in the list
            self._landings.remove(landing)
        if self._body is not None and self._body.frame.landing is landing:
            self._body.move()
        landing.leave()

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes, which is never empty."""
        body = self._body
        direct = body is not None and self._in_frame and self._start == self._end and not body.is_shared
        if body is not None and direct and body.room >= READ_AHEAD_BYTES:
            self._direct = True
            return body.parts[body.part][body.filled : body.filled + min(DIRECT_BYTES, body.room)].data
        self._direct = False
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._ahead[:left] = self._ahead[self._start : self._end].copy()
            self._start, self._end = 0, left
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Note that *count* bytes have been written into the last `buffer()`."""
        if self._direct and (body := self._body) is not None:
            self._fill(body, body.parts[body.part][body.filled : body.filled + count])
        else:
            self._end += count

    def next_frame(self) -> Frame | None:
        """Return the next complete frame; None if more bytes are needed. Raise ProtocolError if the
        stream is invalid.
        """
        if self._error is not None:
            raise self._error
        if self._start == self._end and not self._in_frame:
            return None
        try:
            return self._next_frame()
        except ProtocolError as error:
            self._error = error
            raise

    def _next_frame(self) -> Frame | None:
        body = None
        while body is None or body.rest:
            if not self._in_frame and not self._begin():
                return None
            body = self._body
            assert body is not None
            if body.is_shared:
                self._empty_slots(body)
            else:
                while body.left and self._start < self._end:  # from the read-ahead buffer into place
                    chunk = self._ahead[self._start : min(self._end, self._start + body.room)]
                    self._start += len(chunk)
                    self._copy(body, chunk)
            if body.left:
                return None
            self._in_frame = False
            if body.crc != body.crc_expected and not body.is_shared:
                raise ProtocolError(f"a {body.frame.kind.name} frame with a wrong body checksum")
            if body.frame.kind in WITHOUT_NUMBER:
                self._body = None
                return body.frame
            self._seq += 1
        self._body, self.taken = None, self._seq
        if body.frame.kind is FrameKind.CONTROL:
            return Frame(FrameKind.CONTROL, b"", bytes(body.owned), size_bytes=body.frame.size_bytes)
        if body.frame.kind is FrameKind.DATA:
            body.frame.body_crc, body.frame.is_shared = body.crc, body.is_shared
        return body.frame

    def _begin(self) -> bool:
        """Check preamble and header, and prepare the body's memory; return False if incomplete."""
        start, have = self._start, self._end - self._start
        if have < PREAMBLE_BYTES:
            self._check_magic(bytes(self._view[start : self._end]))
            return False
        preamble = Preamble.read(self._view, start)
        self._check_magic(preamble.magic)
        if preamble.version != PROTOCOL_VERSION:
            raise framing.OtherVersion(
                f"the peer speaks version {preamble.version} of the protocol, this side version {PROTOCOL_VERSION}: "
                "install the same simcluster on every node"
            )
        self._check_lengths(preamble.kind, preamble.header_len, preamble.body_len)
        first, end = start + PREAMBLE_BYTES, start + PREAMBLE_BYTES + preamble.header_len
        if end > self._end:
            return False
        crc = crc32c(self._ahead[start + AFTER_CRC : end], crc32c(self._ahead[start : start + CRC_AT]))
        if crc != preamble.header_crc:
            raise ProtocolError("a frame with a wrong header checksum")
        may_have_more = preamble.kind in (FrameKind.DATA, FrameKind.PART)
        allowed = MORE | (SHARED if self.slots is not None else 0) if may_have_more else 0
        if preamble.flags & ~allowed or preamble.reserved:
            raise ProtocolError(f"flags {preamble.flags} and reserved {preamble.reserved}, expected 0 and 0")
        if (preamble.kind == FrameKind.PART) != (self._body is not None):
            between = "a part without message" if self._body is None else "another frame between the parts of a message"
            raise ProtocolError(between)
        if preamble.seq != self._seq and preamble.kind not in WITHOUT_NUMBER:
            raise ProtocolError(f"frame number {preamble.seq}, expected {self._seq}")
        self._start = end
        if self._body is not None:
            self._body.begin_part(preamble)
        else:
            self._body = prepare(preamble, bytes(self._view[first:end]), self._landings, self.limits.message_bytes)
        self._in_frame = True
        return True

    def _check_magic(self, magic: bytes) -> None:
        """Raise ProtocolError unless *magic*, up to four bytes, can begin a frame."""
        if magic[:1] in TLS_RECORDS and len(magic) >= TLS_RECORD_BYTES and magic[1:2] == b"\x03":
            raise framing.OtherVersion("the peer speaks TLS and this side does not: start both with --tls, or neither")
        if not framing.MAGIC.startswith(magic[:4]):
            raise ProtocolError(f"not a simcluster peer: a frame begins with {magic[:4]!r}, expected {framing.MAGIC!r}")

    def _check_lengths(self, kind: int, header_len: int, body_len: int) -> None:
        size_bytes = PREAMBLE_BYTES + header_len + body_len
        if not self.is_open and kind != FrameKind.HANDSHAKE:
            raise ProtocolError(f"a frame of kind {kind} before the handshake has ended")
        if self.is_open and kind not in (
            FrameKind.DATA,
            FrameKind.CONTROL,
            FrameKind.GOODBYE,
            FrameKind.PART,
            *WITHOUT_NUMBER,
        ):
            raise ProtocolError(f"a frame of kind {kind} after the handshake has ended")
        if kind == FrameKind.HANDSHAKE and size_bytes > framing.HANDSHAKE_LIMIT_BYTES:
            raise ProtocolError(f"a handshake frame of {size_bytes} bytes; at most {framing.HANDSHAKE_LIMIT_BYTES}")
        if header_len > framing.HEADER_LIMIT_BYTES:
            raise ProtocolError(f"a header of {header_len} bytes; at most {framing.HEADER_LIMIT_BYTES}")
        most = framing.CONTROL_LIMIT_BYTES if kind == FrameKind.CONTROL else self.limits.body_bytes
        most = 0 if kind in (FrameKind.HANDSHAKE, FrameKind.GOODBYE, *WITHOUT_NUMBER) else most
        if kind == FrameKind.ACK and header_len:
            raise ProtocolError(f"an acknowledgement with a header of {header_len} bytes; at most 0")
        if body_len > most:
            raise ProtocolError(f"a body of {body_len} bytes; at most {most}")

    def _empty_slots(self, body: Body) -> None:
        """Copy each slot's content into the body, once the length of the content has arrived."""
        slots = self.slots
        assert slots is not None, "checked with the flags"
        while body.left and self._end - self._start >= LENGTH.size:
            (length,) = LENGTH.unpack(self._ahead[self._start : self._start + LENGTH.size].tobytes())
            self._start += LENGTH.size
            if not 0 < length <= min(slots.slot_bytes, body.left):
                most = min(slots.slot_bytes, body.left)
                raise ProtocolError(f"{length} bytes in a slot of shared memory; expected 1 to {most}")
            content = slots.take()[:length]
            while len(content):
                room = body.room
                self._copy(body, content[:room])
                content = content[room:]
            slots.give_back()

    def _copy(self, body: Body, chunk: Bytes) -> None:
        """Copy *chunk* to its place in the body."""
        place = body.parts[body.part][body.filled : body.filled + len(chunk)]
        place[:] = chunk
        self._fill(body, place)

    def _fill(self, body: Body, chunk: Bytes) -> None:
        """Note that *chunk* has arrived, and is in its place in the body."""
        if self.digests or not body.is_shared:
            body.crc = crc32c(chunk, body.crc)
        body.filled += len(chunk)
        body.left -= len(chunk)
        if body.filled == len(body.parts[body.part]):
            body.part, body.filled = body.part + 1, 0
