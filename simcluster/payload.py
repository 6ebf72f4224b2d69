"""The content of a message, and its size in bytes. Both backends count with `sizes_of`, so their counts agree.

A message on the wire is a fixed preamble, a MessagePack header (tag, values, dtype and shape of every tensor) and the
tensors' raw bytes, one after another. Preamble plus header is the *header*, the tensors are the *body*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import torch
from torch import Tensor

from simcluster.unknown_number import UnknownNumber

Scalar: TypeAlias = bool | int | float | str | None
"""The values that a message may carry besides tensors."""

PREAMBLE_BYTES = 40
"""Magic, version, kind, lengths, sequence number and two checksums: see simcluster_backends.sockets.wire.reader."""

MAX_DIMENSIONS = 8

_NAMES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Payload(msgspec.Struct, frozen=True):
    """A list of *tensors* and a few named *values*: `pack(*weights, version=3)` makes one."""

    tensors: tuple[Tensor, ...] = ()
    values: Mapping[str, Scalar] = msgspec.field(default_factory=dict)


class LentPayload(Payload, frozen=True):
    """A payload whose tensors the sender does not change until `send` has returned or raised: see `lend`."""


Sendable: TypeAlias = Payload | Tensor | Sequence[Tensor] | Mapping[str, Scalar] | Scalar
"""Content that `send` accepts; anything other than a Payload is short for one."""


@dataclass(slots=True)
class Message:
    """A payload that arrived from rank *source* in its life *incarnation*. *arrival* is its number in the mailbox."""

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
        """The only tensor of a message with exactly one."""
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
    """Make a payload: `pack(*weights, version=3)` of a list of tensors."""
    return Payload(tensors, values)


def lend(*tensors: Tensor, **values: Scalar) -> Payload:
    """Like `pack`, but promise not to change *tensors* until `send` has returned or raised: they need no copy."""
    return LentPayload(tensors, values)


def as_payload(content: Sendable) -> Payload:
    """Return the Payload that *content* is short for. Raises TypeError on unsupported content."""
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
    """A tensor's dtype, by its name in DTYPES, and shape."""

    dtype: str
    shape: list[int]


class MessageHeader(msgspec.Struct, array_like=True):
    """The typed header of a data message."""

    tag: str
    values: dict[str, Scalar]
    tensors: list[TensorHeader]


def _plain(value: object) -> Scalar:
    """Convert subclasses of numbers and strings, such as numpy's float64, to Python's own types."""
    if isinstance(value, float):
        return float(value)
    return int.__int__(value) if isinstance(value, int) else str.__str__(value)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


@lru_cache(maxsize=4096)
def _tensor_header(dtype: str, shape: torch.Size) -> TensorHeader:
    """Return the cached header: models send the same shapes again and again."""
    return TensorHeader(dtype, list(shape))


def encode_header(tag: str, content: Payload) -> bytes:
    """Return the MessagePack header of *content*. Raises TypeError or ValueError on unsupported content."""
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
    """Return the bytes of all tensors together."""
    return sum([tensor.nbytes for tensor in content.tensors])


def sizes_of(tag: str, content: Payload) -> tuple[int, int]:
    """Return (header bytes, body bytes) of *content* on the wire. Raises what `encode_header` raises.

    The header is only measured: MessagePack's sizes are simple, and a simulator needs no bytes.
    """
    header_B, body_B = PREAMBLE_BYTES + 1, 0  # one byte begins the array of three
    try:
        for tensor in content.tensors:
            known: tuple[int, int] | None = getattr(tensor, "counted_B", None)
            of_header_B, of_body_B = known or _tensor_sizes(tensor.dtype, tensor.layout, tensor.shape)
            header_B += of_header_B
            body_B += of_body_B
        count = len(content.tensors)
        header_B += 1 if count < 16 else 3 if count < 2**16 else 5
        length = len(tag) if tag.isascii() else len(tag.encode())
        header_B += length + (1 if length < 32 else 2 if length < 256 else 3 if length < 2**16 else 5)
        header_B += _values_bytes(content.values) if content.values else 1
    except (AttributeError, KeyError, TypeError, ValueError):
        encode_header(tag, content)  # raises the detailed error
        raise
    return header_B, body_B


def _values_bytes(values: Mapping[str, Scalar]) -> int:
    """Return the bytes of *values* in a header: of a few numbers without encoding them."""
    size_bytes = 1
    if len(values) < 16:
        for key, value in values.items():
            of_key_B, of_value_B = _key_bytes(key), _FIXED_BYTES.get(type(value))
            if of_value_B is None and type(value) is int and -32 <= value < 2**32:
                of_value_B = 1 if value < 2**7 else 2 if value < 2**8 else 3 if value < 2**16 else 5
            if of_key_B is None or of_value_B is None:
                break
            size_bytes += of_key_B + of_value_B
        else:
            return size_bytes
    return len(encode_header("", Payload((), values))) - 3  # less the array, the tag, no tensors


_FIXED_BYTES: dict[type, int] = {float: 9, UnknownNumber: 9, bool: 1}
"""The bytes of a value in a header, whatever it is."""


@lru_cache(maxsize=4096, typed=True)
def _key_bytes(key: object) -> int | None:
    """Return the bytes of the name of a value in a header, None for one that is not short and plain."""
    return 1 + len(key) if type(key) is str and len(key) <= 31 and key.isascii() else None


@lru_cache(maxsize=4096)
def _tensor_sizes(dtype: torch.dtype, layout: torch.layout, shape: torch.Size) -> tuple[int, int]:
    """Return the bytes of such a tensor in a header, and in the body."""
    if layout is not torch.strided or len(shape) > MAX_DIMENSIONS:
        raise ValueError
    return len(_encoder.encode(TensorHeader(DTYPE_NAMES[dtype], list(shape)))), shape.numel() * dtype.itemsize


def count_once(tensor: Tensor) -> Tensor:
    """Return *tensor*, which has no values and never changes its shape: its bytes in a message are counted only now."""
    if tensor.dtype in DTYPE_NAMES and tensor.dim() <= MAX_DIMENSIONS:  # else it cannot be sent
        tensor.__dict__["counted_B"] = _tensor_sizes(tensor.dtype, tensor.layout, tensor.shape)
    return tensor


def freeze(content: Payload) -> Payload:
    """Return a copy that is independent of the sender's tensors."""
    tensors = [
        tensor if tensor.is_meta and not tensor.requires_grad else _copy(tensor) for tensor in content.tensors
    ]  # without values there is nothing to copy
    return Payload(tuple(tensors), dict(content.values))


def _copy(tensor: Tensor) -> Tensor:
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_cpu:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor if tensor.is_meta else tensor.cpu().contiguous()
