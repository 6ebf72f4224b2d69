"""The ways in which quantised folders store a matrix: its tensors, and their conversion to f32.

Numbers of fewer than 8 bits are packed from the lowest bit of a row on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from simcluster.lm.files.safetensors import FLOATS
from simcluster.lm.models.numbers import small_floats

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Members = Mapping[str, tuple[tuple[str, ...], Shape]]
"""Ending of a member's name -> (types that it may have, its shape)."""

E2M1: Final = small_floats(2, 1)
"""Code of 4 bits -> its value."""

WORDS: Final = ("I32",)
AWQ_PLACES: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""The positions of 8 neighbouring columns in one of AWQ's 32-bit words."""


class MemberReader(Protocol):
    """A reader of the rows [*first*, *last*) of the member whose name ends in *ending*.

    If *last* is None, it returns all rows, and keeps them until another matrix is read.
    """

    def __call__(self, ending: str, first: int = 0, last: int | None = None) -> Array: ...


class Packing(ABC):
    """A way to store a matrix in several tensors, its members.

    *main* is the member that determines the shape of the matrix, *mark* the one that only packed
    matrices have. *plain* is the ending of the matrix's own name.
    """

    main: ClassVar[str] = ".weight"
    mark: ClassVar[str]
    plain: ClassVar[str] = ".weight"

    @abstractmethod
    def shape(self, main: Shape) -> Shape:
        """Return the shape of the matrix with a main member of the shape *main*."""

    @abstractmethod
    def members(self, shape: Shape) -> Members:
        """Return the members of a matrix of *shape*."""

    @abstractmethod
    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        """Return the rows [*first*, *last*) of a matrix of *shape*, in f32."""


@dataclass(frozen=True)
class Mlx(Packing):
    """MLX's integers of *bits* bits; each *group* of them in a row shares a scale and an offset."""

    bits: int
    group: int
    mark = ".scales"

    def shape(self, main: Shape) -> Shape:
        return (*main[:-1], main[-1] * 32 // self.bits)

    def members(self, shape: Shape) -> Members:
        *rows, columns = shape
        groups = (FLOATS, (*rows, _parts(columns, self.group)))
        return {".weight": (("U32",), (*rows, columns * self.bits // 32)), ".scales": groups, ".biases": groups}

    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        scales, biases = (_spread(read(one, first, last), self.group, shape[-1]) for one in (".scales", ".biases"))
        return unpacked(read(".weight", first, last), self.bits) * scales + biases


@dataclass(frozen=True)
class Gptq(Packing):
    """GPTQ's integers of *bits* bits, packed along the columns of a matrix stored transposed.

    A group of columns shares a scale and a zero point. The file has the zero point minus *less*.
    """

    bits: int
    group: int
    less: int
    main = ".qweight"
    mark = ".qweight"

    def shape(self, main: Shape) -> Shape:
        words, rows = main
        return rows, words * 32 // self.bits

    def members(self, shape: Shape) -> Members:
        rows, columns = shape
        groups = _parts(columns, self.group)
        words = {".qweight": (columns * self.bits // 32, rows), ".qzeros": (groups, rows * self.bits // 32)}
        return {key: (WORDS, one) for key, one in (words | {".g_idx": (columns,)}).items()} | {
            ".scales": (FLOATS, (groups, rows))
        }

    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        # Files were written with one subtraction per word, so that a zero point of 0 borrowed from
        # the next one. One addition per word undoes this.
        ones = np.uint32(self.less * (2**32 - 1) // (2**self.bits - 1))
        zeros = _columns(read(".qzeros") + ones, self.bits, first, last)
        integers = unpacked(read(".qweight")[:, first:last].T, self.bits)
        return _scaled(integers, zeros, read(".scales")[:, first:last], read(".g_idx"))


@dataclass(frozen=True)
class Awq(Packing):
    """AWQ's integers of 4 bits, packed along the rows of a matrix that is stored transposed."""

    group: int
    main = ".qweight"
    mark = ".qweight"

    def shape(self, main: Shape) -> Shape:
        columns, words = main
        return words * 8, columns

    def members(self, shape: Shape) -> Members:
        rows, columns = shape
        groups = _parts(columns, self.group)
        return {
            ".qweight": (WORDS, (columns, rows // 8)), ".qzeros": (WORDS, (groups, rows // 8)),
            ".scales": (FLOATS, (groups, rows)),
        }  # fmt: skip

    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        integers, zeros = (_columns(read(one), 4, first, last, AWQ_PLACES) for one in (".qweight", ".qzeros"))
        return _scaled(integers.T, zeros, read(".scales")[:, first:last], np.arange(shape[1]) // self.group)


@dataclass(frozen=True)
class Mxfp4(Packing):
    """The experts of gpt-oss in numbers of 4 bits: 32 of a row share a power of two as scale."""

    main = "_blocks"
    mark = "_blocks"
    plain = ""

    def shape(self, main: Shape) -> Shape:
        experts, rows, groups, _ = main
        return experts, groups * 32, rows

    def members(self, shape: Shape) -> Members:
        experts, columns, rows = shape
        groups = (experts, rows, columns // 32)
        return {"_blocks": (("U8",), (*groups, 16)), "_scales": (("U8",), groups)}

    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        numbers = E2M1[unpacked(read("_blocks", first, last), 4)]
        numbers *= np.ldexp(np.float32(1), read("_scales", first, last).astype(np.int32) - 127)[..., None]
        return numbers.reshape(last - first, shape[2], shape[1]).swapaxes(1, 2)


@dataclass(frozen=True)
class Fp8(Packing):
    """Numbers of 8 bits with a scale per block of *height* rows and *width* columns."""

    height: int
    width: int
    mark = ".weight_scale_inv"

    def shape(self, main: Shape) -> Shape:
        return main

    def members(self, shape: Shape) -> Members:
        rows, columns = shape
        blocks = (_parts(rows, self.height), _parts(columns, self.width))
        return {".weight": (("F8_E4M3",), shape), self.mark: (FLOATS, blocks)}

    def rows(self, read: MemberReader, shape: Shape, first: int, last: int) -> Array:
        scales = read(self.mark)[np.arange(first, last) // self.height]
        return read(".weight", first, last) * _spread(scales, self.width, shape[1])


def unpacked(words: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Return the numbers of *bits* bits in each row of *words*."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    found = np.unpackbits(octets, axis=-1, bitorder="little").reshape(*words.shape[:-1], -1, bits)
    numbers = found[..., 0].copy()
    for place in range(1, bits):
        numbers |= found[..., place] << np.uint8(place)
    return numbers


def _columns(words: Array, bits: int, first: int, last: int, places: Sequence[int] = range(32)) -> Array:
    """Return the columns [*first*, *last*) of the numbers in *words*.

    *places* are the positions of consecutive columns in a word.
    """
    count = 32 // bits
    begin = first // count
    found = unpacked(words[:, begin : _parts(last, count)], bits)
    columns = np.arange(first, last)
    return found[:, (columns // count - begin) * count + np.take(places, columns % count)]


def _scaled(integers: Array, zeros: Array, scales: Array, order: Array) -> Array:
    """Return *integers* less *zeros*, times *scales*.

    *zeros* and *scales* are (groups, rows), and *order* has the group of each column. Raise
    ValueError if a group has no scale.
    """
    if order.max() >= len(scales):
        raise ValueError(f"a column of group {order.max():,}, and {len(scales):,} groups")
    return (integers.astype(np.float32) - zeros[order].T) * scales[order].T


def _spread(scales: Array, group: int, count: int) -> Array:
    """Return a scale for each of *count* numbers of a row; *scales* has one per *group* of them."""
    return np.repeat(scales, min(group, count), axis=-1)[..., :count]


def _parts(count: int, size: int) -> int:
    """Return the number of groups of *size* in *count*; the last one may be smaller."""
    return -(-count // size)
