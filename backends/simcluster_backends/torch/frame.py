"""Encode a message as two tensors, and decode it, without I/O and without pickle.

A *lead* of five numbers goes first: the kind, the bytes of the header, the bytes of the buffer, the
number of the frame on its stream, and the bytes of the body on a device. It lets the receiver
allocate memory. The buffer has the MessagePack header and the tensors' raw bytes. Each tensor is
aligned to 64 bytes, as torch's own tensors are: kernels then take the same code path, and sums have
the same bits. If the tensors travel from device to device, they are in a *body* on the device, and
the buffer has only the header.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import msgspec
import torch
from torch import Tensor

from simcluster.errors import ProtocolError
from simcluster.payload import (
    DTYPES,
    MAX_DIMENSIONS,
    PREAMBLE_BYTES,
    Message,
    MessageHeader,
    Payload,
    body_bytes,
    encode_header,
)

LEAD_NUMBERS = 5
ALIGN_BYTES = 64
BODY_LIMIT_BYTES = 2**33
PART_BYTES = 256 * 1024**2
"""The limit on one transfer: a larger buffer travels in parts."""
HEADER_LIMIT_BYTES = 2**26


class TorchFrameKind(IntEnum):
    """The kind of a frame.

    DATA is a message of the algorithm; so is CARRIED, whose tensors are in a body on the device.
    OUTCOME has a rank's record. END is the last frame of a stream; its buffer has the reason, or is
    empty if the node ended well.
    """

    DATA = 1
    OUTCOME = 2
    END = 3
    CARRIED = 4


@dataclass(frozen=True)
class TorchFrame:
    """A frame: the first *header_bytes* of *buffer* are its header.

    *size_bytes* is the size of a message in statistics, which is equal on all backends.
    """

    kind: TorchFrameKind
    header_bytes: int
    buffer: Tensor
    size_bytes: int = 0
    body: Tensor | None = None

    def lead(self, number: int) -> Tensor:
        body_bytes = 0 if self.body is None else self.body.numel()
        return torch.tensor([self.kind, self.header_bytes, self.buffer.numel(), number, body_bytes], dtype=torch.int64)


_decoder = msgspec.msgpack.Decoder(MessageHeader)


def data_frame(tag: str, payload: Payload, carried: torch.device | None = None) -> TorchFrame:
    """Return a frame with a copy of *payload*, which later changes of its tensors do not affect.

    The copy is on the host, or on the device *carried* if all tensors are there. Raise TypeError or
    ValueError for content that cannot be sent.
    """
    header = encode_header(tag, payload)
    for tensor in payload.tensors:
        if tensor.is_meta:
            raise TypeError(f"message {tag!r}: a meta tensor has no bytes to send")
    size_bytes = body_bytes(payload)
    if size_bytes > BODY_LIMIT_BYTES:
        raise ValueError(f"message {tag!r}: {size_bytes} bytes of tensors, at most {BODY_LIMIT_BYTES}")
    is_carried = bool(payload.tensors) and all(tensor.device == carried for tensor in payload.tensors)
    body_size = sum(_up(tensor.nbytes) for tensor in payload.tensors)
    header_size = _up(len(header))
    buffer = torch.zeros(header_size + (0 if is_carried else body_size), dtype=torch.uint8)
    buffer[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    body = torch.zeros(body_size, dtype=torch.uint8, device=carried) if is_carried else buffer[header_size:]
    at = 0
    for tensor in payload.tensors:
        if tensor.nbytes:
            _view(body, at, tensor.nbytes, tensor.dtype, tensor.shape).copy_(tensor.detach())
        at += _up(tensor.nbytes)
    kind = TorchFrameKind.CARRIED if is_carried else TorchFrameKind.DATA
    total_bytes = PREAMBLE_BYTES + len(header) + size_bytes
    return TorchFrame(kind, len(header), buffer, total_bytes, body if is_carried else None)


def control_frame(kind: TorchFrameKind, content: bytes) -> TorchFrame:
    """Return a frame of *kind* with *content*, which is no message of the algorithm."""
    buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    return TorchFrame(kind, len(content), buffer)


def read_lead(lead: Tensor, number: int) -> tuple[TorchFrameKind, int, int, int]:
    """Return (kind, bytes of header, bytes of buffer, bytes of body) of frame *number*.

    Raise ProtocolError for a lead that no correct peer sends.
    """
    kind, header_bytes, total_bytes, found, body_bytes = (int(value) for value in lead)
    if kind not in tuple(TorchFrameKind) or found != number:
        raise ProtocolError(f"a lead of kind {kind} and number {found}, expected a known kind and number {number}")
    is_message = kind in (TorchFrameKind.DATA, TorchFrameKind.CARRIED)
    fits = 0 <= header_bytes <= min(total_bytes, HEADER_LIMIT_BYTES if is_message else total_bytes)
    if not fits or total_bytes > 2 * BODY_LIMIT_BYTES:
        raise ProtocolError(f"a lead of {header_bytes} bytes of header in {total_bytes}")
    if not 0 <= body_bytes <= (2 * BODY_LIMIT_BYTES if kind == TorchFrameKind.CARRIED else 0):
        raise ProtocolError(f"a lead of kind {kind} with {body_bytes} bytes on the device")
    return TorchFrameKind(kind), header_bytes, total_bytes, body_bytes


def read_message(source: int, header_bytes: int, buffer: Tensor, body: Tensor | None = None) -> Message:
    """Return the message in *buffer*. Raise ProtocolError if it is invalid.

    The message's tensors are views of *body*, or of *buffer* if *body* is None.
    """
    try:
        header = _decoder.decode(content_of(buffer[:header_bytes]))
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a header that cannot be read: {error}") from None
    body = buffer[_up(header_bytes) :] if body is None else body
    tensors = []
    at = 0
    size_bytes = 0
    for part in header.tensors:
        if part.dtype not in DTYPES or len(part.shape) > MAX_DIMENSIONS or any(n < 0 for n in part.shape):
            raise ProtocolError(f"a tensor of {part.dtype!r} and shape {part.shape}")
        dtype = DTYPES[part.dtype]
        part_bytes = math.prod(part.shape) * dtype.itemsize
        if at + part_bytes > body.numel():
            raise ProtocolError(f"a message with {body.numel()} bytes of tensors, which need more")
        shape = torch.Size(part.shape)
        empty = partial(torch.empty, part.shape, dtype=dtype, device=body.device)
        tensors.append(_view(body, at, part_bytes, dtype, shape) if part_bytes else empty())
        at, size_bytes = at + _up(part_bytes), size_bytes + part_bytes
    size_bytes += PREAMBLE_BYTES + header_bytes
    return Message(source, header.tag, Payload(tuple(tensors), header.values), size_bytes)


def parts_of(buffer: Tensor) -> list[Tensor]:
    """Return views of *buffer*, each of at most PART_BYTES; [] for an empty buffer."""
    return [buffer[start : start + PART_BYTES] for start in range(0, buffer.numel(), PART_BYTES)]


def content_of(buffer: Tensor) -> bytes:
    return buffer.numpy().tobytes()


def _view(buffer: Tensor, at: int, size_bytes: int, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return buffer[at : at + size_bytes].view(dtype).view(shape)


def _up(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
