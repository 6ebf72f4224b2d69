"""Conversion to 16-bit floats, which take half the bytes of float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout


class HalfFloats(Compressor):
    """A compressor that converts every number to the 16-bit dtype *form*."""

    form: ClassVar[torch.dtype]

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        return [vector.to(self.form)]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        return parts[0].to(layout.dtype)


class Fp16(HalfFloats):
    """IEEE half precision: 11 significant bits, up to 65,504; larger numbers become infinite."""

    kind: Literal["fp16"] = "fp16"
    form = torch.float16


class Bf16(HalfFloats):
    """bfloat16: the range of float32 with 8 significant bits."""

    kind: Literal["bf16"] = "bf16"
    form = torch.bfloat16
