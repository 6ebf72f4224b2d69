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
    def encode(self, vector: Tensor, layout: Layout, memory: Memory) -> list[Tensor]:
        """Return the small tensors to send in place of *vector*, which has at least one element."""

    @abstractmethod
    def decode(self, parts: Sequence[Tensor], layout: Layout) -> Tensor:
        """Return the vector that *parts* stand for, from *parts* and *layout* alone."""


class WithFeedback(Compressor):
    """A compressor that can use error feedback, if *error_feedback* is set."""

    error_feedback: bool = True

    @property
    def feeds_back(self) -> bool:
        return self.error_feedback
