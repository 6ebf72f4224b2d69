"""The interface of a compressor, the layout of its vectors, and its state between vectors."""

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
    """The *shapes* of the tensors that are concatenated in a vector of *dtype*. The sender and all
    receivers know the layout.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> VectorLayout:
        """Return the layout of the vector that `flatten` makes of *tensors*."""
        dtype = torch.float32 if not tensors else tensors[0].dtype
        for tensor in tensors:
            if tensor.dtype is not dtype:
                dtype = torch.promote_types(dtype, tensor.dtype)
        return _layout(tuple([tensor.shape for tensor in tensors]), dtype)

    @cached_property
    def lengths(self) -> list[int]:
        """The number of elements of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def length(self) -> int:
        return sum(self.lengths)

    def tensors(self, vector: Tensor) -> list[Tensor]:
        """Return the tensors in *vector*, as views.

        If *vector* has no values, all nodes share the same tensors.
        """
        if vector.is_meta and vector.dtype is self.dtype and not torch._C._len_torch_dispatch_stack():
            return list(self._hollow)
        pieces = torch.split(vector, self.lengths)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    @cached_property
    def _hollow(self) -> list[Tensor]:
        return self.empty()

    def empty(self) -> list[Tensor]:
        """Return tensors of this layout without values, for counting costs."""
        return [torch.empty(shape, dtype=self.dtype, device="meta") for shape in self.shapes]

    def cut(self, size: int) -> list[VectorLayout]:
        """Return the layouts of the *size* chunks that `Tensor.tensor_split` makes of the vector. A
        chunk may begin or end inside a tensor.
        """
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
    # This is cached, so that all nodes of a simulation share one layout.
    return VectorLayout(tuple(map(tuple, shapes)), dtype)


@dataclass
class StreamMemory:
    """A sender's state for one stream: its random generators, and the tensors that a compressor
    *kept* from the last vector.

    Every stream has separate generators, so the order of draws from different streams does not
    matter.
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
        """Draw and return normal numbers of *like*'s dtype, which are the same on every node."""
        if like.is_meta:
            return like.new_empty(shape)
        return torch.from_numpy(self._common.standard_normal(shape)).to(like.device, like.dtype)

    def uniform(self, like: Tensor) -> Tensor:
        """Draw and return uniform numbers in [0, 1), in a tensor like *like*."""
        if like.is_meta:
            return torch.empty_like(like)
        return torch.rand(like.shape, dtype=like.dtype, generator=self._generator).to(like.device)

    def number(self) -> int:
        """Return a new seed, from which the receiver can make the same generator."""
        self._drawn += 1
        names = ("node", self.rng.node, "compression", self.name, str(self._drawn))
        return int(seed_sequence(self.rng.seed, *names).generate_state(1, "uint64")[0]) >> 1

    def checkpoint_state(self) -> dict[str, Any]:
        made = vars(self)  # a cached property is in vars only after its first use
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
    """A compressor of one kind, with its settings.

    *kind* is the name of the kind; the fields are the keys that a file may set.

    The sizes of the encoded tensors depend only on the layout, never on values, so that a
    timing-only run sends equally many bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summed: ClassVar[Literal["chunks", "whole"]] = "chunks"
    """How ranks average: chunk by chunk, with the mean of each chunk compressed again ("chunks"),
    or by an all-gather of encoded vectors ("whole").
    """

    kind: str

    @property
    def feeds_back(self) -> bool:
        """Whether the error of encoding is kept and added to the next vector (Stich 2018)."""
        return False

    @property
    def kept_share(self) -> float:
        """The share of that error that is kept."""
        return 1.0

    @abstractmethod
    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        """Return the smaller tensors to send instead of *vector*, which has at least one
        element.
        """

    @abstractmethod
    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        """Return the vector that *parts* encode. This needs no state."""


class FeedbackCompressor(Compressor):
    """A compressor that uses error feedback if *error_feedback* is set."""

    error_feedback: bool = True

    @property
    def feeds_back(self) -> bool:
        return self.error_feedback
