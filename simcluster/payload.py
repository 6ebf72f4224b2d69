"""The content of a message, and its size in bytes.

All backends count bytes with `sizes_of`, so their counts agree.

On the wire, a message has a fixed preamble, a MessagePack header with the tag, the values and the
dtype and shape of every tensor, and finally the raw bytes of all tensors. In byte counts, the
preamble and the MessagePack header together are the *header*, and the tensors are the *body*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import torch
from torch import Tensor

from simcluster.unknown_number import UnknownNumber

Scalar = bool | int | float | str | None
"""The types of the values that a message may carry besides tensors."""

PREAMBLE_BYTES = 40
"""Size of the preamble: magic number, version, kind, lengths, sequence number and two checksums.

See simcluster_backends.sockets.wire.reader.
"""

MAX_DIMENSIONS = 8

_NAMES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


# A length or an integer takes more bytes in MessagePack once it reaches one of these limits:
# https://github.com/msgpack/msgpack/blob/master/spec.md
_ARRAY_LIMITS = (16, 2**16)
_ARRAY_BYTES = (1, 3, 5)
_TEXT_LIMITS = (32, 2**8, 2**16)
_INTEGER_LIMITS = (2**7, 2**8, 2**16)
_SCALAR_BYTES = (1, 2, 3, 5)


class Payload(msgspec.Struct, frozen=True):
    """A tuple of *tensors* and named *values*; `pack(*weights, version=3)` makes one."""

    tensors: tuple[Tensor, ...] = ()
    values: Mapping[str, Scalar] = msgspec.field(default_factory=dict)


class LentPayload(Payload, frozen=True):
    """A payload with tensors that the sender does not change until `send` returns or raises: see
    `lend`.
    """


Sendable = Payload | Tensor | Sequence[Tensor] | Mapping[str, Scalar] | Scalar
"""The types of content that `send` accepts; anything except a Payload is an abbreviation of one."""


@dataclass(slots=True)
class Message:
    """A payload that has arrived from rank *source*.

    *incarnation* is the number of the sender's restarts. *arrival* numbers the messages of a
    mailbox in the order of arrival.
    """

    source: int
    tag: str
    payload: Payload
    size_bytes: int
    arrival: int = field(default=0, compare=False, repr=False)
    incarnation: int = field(default=0, compare=False, repr=False)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.payload.tensors

    @property
    def tensor(self) -> Tensor:
        """The only tensor of the message. Raise ValueError if the message does not have exactly
        one.
        """
        if (count := len(self.payload.tensors)) != 1:
            raise ValueError(f"message {self.tag!r} from rank {self.source} has {count} tensors, not one: use .tensors")
        return self.payload.tensors[0]

    def __getitem__(self, name: str) -> Any:
        try:
            return self.payload.values[name]
        except KeyError:
            known = ", ".join(sorted(self.payload.values)) or "none"
            what = f"message {self.tag!r} from rank {self.source}"
            raise KeyError(f"{what} has no value {name!r} (it has: {known})") from None


def pack(*tensors: Tensor, **values: Scalar) -> Payload:
    """Return a payload of *tensors* and named *values*: `pack(*weights, version=3)`."""
    return Payload(tensors, values)


def lend(*tensors: Tensor, **values: Scalar) -> Payload:
    """Return a payload like `pack`, but with tensors that `send` need not copy.

    The caller promises not to change *tensors* until `send` has returned or raised.
    """
    return LentPayload(tensors, values)


def as_payload(content: Sendable) -> Payload:
    """Return *content* as a Payload. Raise TypeError if a message cannot carry it."""
    if isinstance(content, Payload):
        return content
    if isinstance(content, Tensor):
        return Payload((content,))
    if isinstance(content, Mapping):
        return Payload((), content)
    if content is None:
        return Payload()
    if isinstance(content, (bool, int, float, str)):
        return Payload((), {"value": content})
    if isinstance(content, (list, tuple)):
        return Payload(tuple(content))
    raise TypeError(f"a message carries tensors and scalars, not {type(content).__name__}")


class TensorHeader(msgspec.Struct, array_like=True):
    """The dtype of a tensor, as a name in DTYPES, and its shape."""

    dtype: str
    shape: list[int]


class MessageHeader(msgspec.Struct, array_like=True):
    """The MessagePack header of a message."""

    tag: str
    values: dict[str, Scalar]
    tensors: list[TensorHeader]


def _plain(value: object) -> Scalar:
    """Return a number or string as Python's own type: the encoder calls this for subclasses."""
    if isinstance(value, float):
        return float(value)
    return int.__int__(value) if isinstance(value, int) else str.__str__(value)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


@lru_cache(maxsize=4096)
def _tensor_header(dtype: str, shape: torch.Size) -> TensorHeader:
    """Return the header of a tensor, from a cache, since models send the same shapes again and
    again.
    """
    return TensorHeader(dtype, list(shape))


def encode_header(tag: str, content: Payload) -> bytes:
    """Return the MessagePack header of a message with *tag* and *content*.

    Raise TypeError or ValueError if a message cannot carry them.
    """
    if not isinstance(tag, str):
        raise TypeError(f"a tag is text, not the {type(tag).__name__} {tag!r}")
    headers = []
    for tensor in content.tensors:
        name = DTYPE_NAMES.get(tensor.dtype) if isinstance(tensor, Tensor) else None
        if name is None or tensor.layout is not torch.strided:
            what = f"{tensor.dtype} {tensor.layout}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"message {tag!r}: cannot send {what}; expected a dense tensor of {', '.join(DTYPES)}")
        if tensor.dim() > MAX_DIMENSIONS:
            raise ValueError(f"message {tag!r}: {tensor.dim()} dimensions, at most {MAX_DIMENSIONS}")
        headers.append(_tensor_header(name, tensor.shape))
    for key, value in content.values.items():
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise TypeError(
                f"message {tag!r}: value {key!r} is a {type(value).__name__}; expected a number, string or None"
            )
    try:
        return _encoder.encode(MessageHeader(tag, dict(content.values), headers))
    except (OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"message {tag!r}: {error}; expected integers of 64 bits and valid text") from None


def body_bytes(content: Payload) -> int:
    """Return the total number of bytes of all tensors in *content*."""
    return sum([tensor.nbytes for tensor in content.tensors])


def sizes_of(tag: str, content: Payload) -> tuple[int, int]:
    """Return (header bytes, body bytes) of a message on the wire. Raise the errors of
    `encode_header`.

    The sizes are computed without encoding the header, since a simulator does not need the bytes.
    """
    header_B = PREAMBLE_BYTES + 1  # the header is an array of three, which begins with one byte
    body_B = 0
    try:
        for tensor in content.tensors:
            known: tuple[int, int] | None = getattr(tensor, "counted_B", None)
            of_header_B, of_body_B = known or _tensor_sizes(tensor.dtype, tensor.layout, tensor.shape)
            header_B += of_header_B
            body_B += of_body_B
        count = len(content.tensors)
        header_B += _ARRAY_BYTES[bisect_right(_ARRAY_LIMITS, count)]
        length = len(tag) if tag.isascii() else len(tag.encode())
        header_B += length + _SCALAR_BYTES[bisect_right(_TEXT_LIMITS, length)]
        header_B += _values_bytes(content.values) if content.values else 1
    except (AttributeError, KeyError, TypeError, ValueError):
        # encode_header finds the same problem, and its error names the part of the content that is
        # wrong.
        encode_header(tag, content)
        raise
    return header_B, body_B


def size_of(tag: str, content: Sendable) -> int:
    """Return the size in bytes of a message with *content* on the wire, including its header."""
    return sum(sizes_of(tag, as_payload(content)))


def _values_bytes(values: Mapping[str, Scalar]) -> int:
    """Return the size in bytes of *values* in a header.

    A few plain numbers are counted without encoding them.
    """
    size_bytes = 1
    if len(values) < 16:
        for key, value in values.items():
            of_key_B, of_value_B = _key_bytes(key), _FIXED_BYTES.get(type(value))
            if of_value_B is None and type(value) is int and -32 <= value < 2**32:
                of_value_B = _SCALAR_BYTES[bisect_right(_INTEGER_LIMITS, value)]
            if of_key_B is None or of_value_B is None:
                break
            size_bytes += of_key_B + of_value_B
        else:
            return size_bytes
    # Subtract three bytes that do not belong to the values: the array of three, the empty tag and
    # the empty list of tensors.
    return len(encode_header("", Payload((), values))) - 3


_FIXED_BYTES: dict[type, int] = {float: 9, UnknownNumber: 9, bool: 1}
"""Type of a value -> its size in bytes in a header, for types that always have the same size."""


@lru_cache(maxsize=4096, typed=True)
def _key_bytes(key: object) -> int | None:
    """Return the size in bytes of the name *key* in a header, or None unless it is short ASCII
    text.
    """
    return 1 + len(key) if type(key) is str and len(key) <= 31 and key.isascii() else None


@lru_cache(maxsize=4096)
def _tensor_sizes(dtype: torch.dtype, layout: torch.layout, shape: torch.Size) -> tuple[int, int]:
    """Return (header bytes, body bytes) of a tensor in a message."""
    if layout is not torch.strided or len(shape) > MAX_DIMENSIONS:
        raise ValueError
    return len(_encoder.encode(TensorHeader(DTYPE_NAMES[dtype], list(shape)))), shape.numel() * dtype.itemsize


def count_once(tensor: Tensor) -> Tensor:
    """Return *tensor*, which remembers its size in a message from now on, so that `sizes_of` need
    not count it again.

    *tensor* must have no values and never change its shape.
    """
    # Any other tensor cannot be sent; `sizes_of` raises the error.
    if tensor.dtype in DTYPE_NAMES and tensor.dim() <= MAX_DIMENSIONS:
        tensor.__dict__["counted_B"] = _tensor_sizes(tensor.dtype, tensor.layout, tensor.shape)
    return tensor


def freeze(content: Payload) -> Payload:
    """Return a copy of *content*, which later changes of the sender's tensors do not affect."""
    # A tensor on the meta device has no values that could be copied.
    tensors = [tensor if tensor.is_meta and not tensor.requires_grad else _copy(tensor) for tensor in content.tensors]
    return Payload(tuple(tensors), dict(content.values))


def _copy(tensor: Tensor) -> Tensor:
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_cpu:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor if tensor.is_meta else tensor.cpu().contiguous()
