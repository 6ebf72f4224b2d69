"""The interface of a compressor, the layout of the vectors that it gets, and its state from one to the next."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from simcluster.rng import NodeRandom, seed_sequence, torch_stream


@dataclass(frozen=True)
class VectorLayout:
    """The *shapes* of the tensors that are concatenated in a vector of *dtype*. Sender and receivers both know it."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> VectorLayout:
        """Return the layout of *tensors* as `flatten` joins them."""
        dtype = torch.float32 if not tensors else tensors[0].dtype
        for tensor in tensors:
            if tensor.dtype is not dtype:
                dtype = torch.promote_types(dtype, tensor.dtype)
        return _layout(tuple([tensor.shape for tensor in tensors]), dtype)

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of the tensors, in elements."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def length(self) -> int:
        return sum(self.lengths)

    def tensors(self, vector: Tensor) -> list[Tensor]:
        """Return the pieces of *vector*: views, not copies; for a vector without values, the same for all nodes."""
        if vector.is_meta and vector.dtype is self.dtype and not torch._C._len_torch_dispatch_stack():
            return list(self._hollow)
        pieces = torch.split(vector, self.lengths)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    @cached_property
    def _hollow(self) -> list[Tensor]:
        return self.empty()

    def empty(self) -> list[Tensor]:
        """Return tensors of these shapes without values, to count costs."""
        return [torch.empty(shape, dtype=self.dtype, device="meta") for shape in self.shapes]

    def cut(self, size: int) -> list[VectorLayout]:
        """Return the layouts of the *size* chunks of `Tensor.tensor_split`; tensors on a border are cut too."""
        each, longer = divmod(self.length, size)
        chunks, rest = [], [length for length in self.lengths if length]
        for chunk in range(size):
            wanted, pieces = each + (chunk < longer), []
            while wanted:
                piece = min(wanted, rest[0])
                pieces.append((piece,))
                wanted -= piece
                rest[0] -= piece
                if not rest[0]:
                    rest.pop(0)
            chunks.append(VectorLayout(tuple(pieces), self.dtype))
        return chunks


@lru_cache(maxsize=64)
def _layout(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> VectorLayout:
    return VectorLayout(tuple(map(tuple, shapes)), dtype)  # one for all nodes of a simulation


@dataclass
class StreamMemory:
    """A sender's state for one stream: its random draws, and what a compressor *kept* from the last vector.

    Every stream has separate generators, so the order of serving them does not matter.
    """

    rng: NodeRandom
    name: str
    kept: list[Tensor] = field(default_factory=list)
    _drawn: int = 0

    @cached_property
    def _generator(self) -> torch.Generator:
        return torch_stream(self.rng.seed, "node", self.rng.node, "compression", self.name)

    @cached_property
    def _common(self) -> np.random.Generator:
        return self.rng.shared("compression", self.name)

    def common_normal(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return normal numbers of *like*'s dtype, the same on every node."""
        if like.is_meta:
            return like.new_empty(shape)
        return torch.from_numpy(self._common.standard_normal(shape)).to(like.device, like.dtype)

    def uniform(self, like: Tensor) -> Tensor:
        """Return uniform numbers in [0, 1), as many as *like* has."""
        if like.is_meta:
            return torch.empty_like(like)
        return torch.rand(like.shape, dtype=like.dtype, generator=self._generator).to(like.device)

    def number(self) -> int:
        """Return a fresh seed, from which the receiver can make the same generator."""
        self._drawn += 1
        names = ("node", self.rng.node, "compression", self.name, str(self._drawn))
        return int(seed_sequence(self.rng.seed, *names).generate_state(1, "uint64")[0]) >> 1

    def checkpoint_state(self) -> dict[str, Any]:
        made = vars(self)  # only the generators that were used
        return {
            "kept": self.kept,
            "drawn": self._drawn,
            "own": self._generator.get_state() if "_generator" in made else None,
            "common": self._common.bit_generator.state if "_common" in made else None,
        }

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        self.kept, self._drawn = list(state["kept"]), state["drawn"]
        if state["own"] is not None:
            self._generator.set_state(state["own"].cpu())
        if state["common"] is not None:
            self._common.bit_generator.state = state["common"]


class Compressor(BaseModel):
    """Settings of one kind of compression; *kind* is its name. Fields are the keys that a file may have.

    The sizes of the encoded tensors depend on the layout alone, never on values, so that a timing-only run sends the
    same bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summed: ClassVar[Literal["chunks", "whole"]] = "chunks"
    """How ranks average: by chunks, compressing each mean again, or by an all-gather of whole encodings."""

    kind: str

    @property
    def feeds_back(self) -> bool:
        """Whether the error of encoding is kept and added to the next vector (Stich 2018)."""
        return False

    @abstractmethod
    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        """Return the small tensors to send in place of *vector*, which has at least one element."""

    @abstractmethod
    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        """Return the vector that *parts* stand for, from *parts* and *layout* alone."""


class FeedbackCompressor(Compressor):
    """A compressor that can use error feedback, if *error_feedback* is set."""

    error_feedback: bool = True

    @property
    def feeds_back(self) -> bool:
        return self.error_feedback
