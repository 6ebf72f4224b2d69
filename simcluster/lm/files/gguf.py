"""The header of a GGUF file: metadata by name, and the locations of its tensors.

No tensor is read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np

T = TypeVar("T")

MOST_HEAD: Final = 64 * 2**20
MOST_ENTRIES: Final = 2**20
MOST_TEXT: Final = 2**16
MOST_DIMENSIONS: Final = 8
"""Limits of a header: its bytes, entries, characters of a string, and dimensions of a tensor.

All arrays of strings together may have 4 * MOST_ENTRIES strings.
"""

SCALARS: Final[Mapping[int, str]] = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
"""GGUF's number of a scalar type -> its letter in `struct`. Type 8 is a string, type 9 an array."""

TEXT, ARRAY = 8, 9

_BLOCKS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 40), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136),
    "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8),
    "IQ1_M": (29, 256, 56), "BF16": (30, 1, 2), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
}  # fmt: skip
TYPES: Final[Mapping[int, tuple[str, int, int]]] = {kind: (name, *rest) for name, (kind, *rest) in _BLOCKS.items()}  # type: ignore[misc]
"""GGUF's number of a tensor type -> (name, numbers per block, bytes per block)."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: its *shape* (rows first), its type *kind* as a number, its *offset*."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def type_name(self) -> str:
        return TYPES[self.kind][0] if self.kind in TYPES else f"type {self.kind}"

    @property
    def nbytes(self) -> int:
        """The size in bytes.

        Raise ValueError if the type is unknown, or if a row ends within a block.
        """
        if self.kind not in TYPES:
            raise ValueError(f"weights of GGUF's type {self.kind}")
        name, block, block_bytes = TYPES[self.kind]
        if self.shape and self.shape[-1] % block:
            raise ValueError(f"rows of {self.shape[-1]:,} numbers of {name}, in blocks of {block}")
        return math.prod(self.shape) // block * block_bytes


@dataclass(frozen=True)
class Header:
    """The metadata and tensors of a file by name, and the offset *begin* of the tensor data.

    Arrays in the metadata are lists of strings or numpy arrays.
    """

    facts: dict[str, Any]
    tensors: dict[str, StoredTensor]
    begin: int


class _GgufReader:
    """A reader of numbers and strings from the beginning of a file, of at most MOST_HEAD bytes."""

    def __init__(self, file: BinaryIO, *, lists: bool) -> None:
        self._file = file
        self._content = bytearray()
        self.at = 0
        self._texts = 0
        self._lists = lists

    def take(self, size: int) -> int:
        """Move past the next *size* bytes and return the position at which they begin."""
        begin = self.at
        end = begin + size
        if end > MOST_HEAD:
            raise ValueError(f"a header of more than {MOST_HEAD:,} bytes")
        while len(self._content) < end:
            # A header has many small values, so the file is read in large pieces.
            piece = self._file.read(max(2**20, end - len(self._content)))
            if not piece:
                raise ValueError(f"an end after {len(self._content):,} bytes, in the middle of the header")
            self._content += piece
        self.at = end
        return begin

    def number(self, letter: str) -> Any:
        return struct.unpack_from(f"<{letter}", self._content, self.take(struct.calcsize(f"<{letter}")))[0]

    def text(self) -> str:
        begin = self.take(self.number("Q"))
        return self._content[begin : self.at].decode("utf-8", "replace")

    def value(self) -> Any:
        """Return the next metadata value, or None if it is an overlong string or a skipped list.

        Raise ValueError if its type is unknown or it is too large.
        """
        kind = self.number("I")
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == TEXT:
            text = self.text()
            return text if len(text) <= MOST_TEXT else None
        if kind != ARRAY:
            raise ValueError(f"a value of type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            kind_of = np.dtype(f"<{SCALARS[inner]}")
            begin = self.take(count * kind_of.itemsize)
            return np.frombuffer(bytes(self._content[begin : self.at]), kind_of)
        self._texts += count  # even empty strings take memory, so their number is limited
        if inner != TEXT or self._texts > 4 * MOST_ENTRIES:
            raise ValueError(f"an array of {count:,} values of type {inner}")
        if self._lists:
            return [self.text() for _ in range(count)]
        for _ in range(count):
            self.take(self.number("Q"))
        return None


def read_header(file: BinaryIO, *, lists: bool = True) -> Header:
    """Return the header at the beginning of *file*. Raise ValueError if it is malformed.

    If *lists* is false, lists of strings become None, because they take most of the memory.
    """
    reader = _GgufReader(file, lists=lists)
    if reader.number("I") != int.from_bytes(b"GGUF", "little"):
        raise ValueError("no GGUF file: it begins otherwise")
    version, tensors, entries = (reader.number(letter) for letter in "IQQ")
    if version not in (2, 3) or max(tensors, entries) > MOST_ENTRIES:
        raise ValueError(f"GGUF version {version} with {tensors:,} tensors and {entries:,} entries")
    facts = _by_name((reader.text(), reader.value()) for _ in range(entries))
    stored = _by_name(_tensors(reader, tensors))
    alignment = facts.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20:
        raise ValueError(f"general.alignment {alignment!r}")
    begin = -(-reader.at // alignment) * alignment
    placed = {name: StoredTensor(one.shape, one.kind, begin + one.offset) for name, one in stored.items()}
    return Header(facts, placed, begin)


def _by_name(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return *pairs* as a mapping. Raise ValueError if a name occurs twice."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:60]!r} twice")
        found[name] = value
    return found


def _tensors(reader: _GgufReader, count: int) -> Iterator[tuple[str, StoredTensor]]:
    for _ in range(count):
        name, rank = reader.text(), reader.number("I")
        if rank > MOST_DIMENSIONS:
            raise ValueError(f"a tensor of {rank:,} dimensions")
        shape = [reader.number("Q") for _ in range(rank)]
        yield name, StoredTensor(tuple(reversed(shape)), reader.number("I"), reader.number("Q"))
