"""Half the bytes: floats of 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout


class Fp16(Compressor):
    """IEEE half precision: 11 significant bits, up to 65,504; larger numbers become infinite."""

    kind: Literal["fp16"] = "fp16"

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        return [vector.to(torch.float16)]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        return parts[0].to(layout.dtype)


class Bf16(Compressor):
    """bfloat16: the range of float32 with 8 significant bits."""

    kind: Literal["bf16"] = "bf16"

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        return [vector.to(torch.bfloat16)]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        return parts[0].to(layout.dtype)
