"""The interface of a compressor: settings that can be written in a file, and two functions of a vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from simcluster.compression.layout import Layout, Memory


class Compressor(BaseModel):
    """Settings of one kind of compression; *kind* is its name. Fields are the keys that a file may have.

    The sizes of what travels depend on the layout alone, never on values, so that a run without values sends the same
    bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    summed: ClassVar[Literal["chunks", "whole"]] = "chunks"
    """How ranks average it: chunk by chunk, compressed again on the way back, or by handing round all there is."""

    kind: str

    @property
    def feeds_back(self) -> bool:
        """Whether what was not sent is kept, and added to the next vector (Stich 2018)."""
        return False

    @abstractmethod
    def encode(self, vector: Tensor, layout: Layout, memory: Memory) -> list[Tensor]:
        """The small tensors that travel in place of *vector*, which has at least one element."""

    @abstractmethod
    def decode(self, parts: Sequence[Tensor], layout: Layout) -> Tensor:
        """The vector that *parts* stand for: all that a receiver needs is in them and in the *layout*."""


class WithFeedback(Compressor):
    """A compressor whose method has error feedback; *error_feedback* says whether to use it."""

    error_feedback: bool = True

    @property
    def feeds_back(self) -> bool:
        return self.error_feedback
