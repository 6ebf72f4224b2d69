"""The formats of weights: one vocabulary for all commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from simcluster.errors import UsageError
from simcluster.spelling import nearest

FORMATS: Final[Mapping[str, float]] = {"f32": 4.0, "bf16": 2.0, "f16": 2.0, "int8": 1.0, "q4": 18 / 32}
"""Format -> bytes per weight.

int8 has one scale per row, which is negligible; q4 has an f16 scale per block of 32 weights.
"""

Precision: TypeAlias = Literal["f32", "bf16", "f16", "int8", "q4"]

DEFAULT: Final[Precision] = "f32"
"""The format in which the engine holds weights unless another is chosen."""

HELD_BYTES: Final[Mapping[str, float]] = {"int8": 1.0, "q4": 20 / 32}
"""Format -> bytes per weight of a matrix in memory; FORMATS has the bytes per weight in files.

q4 has a scale and a zero point in bf16 per 32 weights. Embedding tables have 8 bits per weight in
both formats.
"""

ALIASES: Final[Mapping[str, str]] = {
    "float32": "f32", "fp32": "f32", "bfloat16": "bf16", "float16": "f16", "fp16": "f16",
    "q8": "int8", "i8": "int8", "q8_0": "int8", "int4": "q4", "q4_0": "q4",
}  # fmt: skip


def format_of(name: str) -> Precision:
    """Return the format with the name or alias *name*. Raise UsageError if there is none."""
    found = ALIASES.get(name, name)
    if found not in FORMATS:
        raise UsageError("--weights", repr(name)[:60], f"a format: {nearest(name, (*FORMATS, AUTO))}")
    return cast("Precision", found)


AUTO: Final = "auto"
"""The fastest format that was measured on all nodes, and that fits."""

PRODUCT_SHAPE: Final = (512, 2048)
PRODUCT_COPIES: Final = 16
PRODUCT_FLOPS: Final = 2 * PRODUCT_COPIES * PRODUCT_SHAPE[0] * PRODUCT_SHAPE[1]
"""The matrices that a measurement multiplies a token with: in f32 more than most caches hold."""


def work_in(name: str) -> str:
    """Return the name of a product with weights in the format *name*, as a kind of work in a profile."""
    return f"weights/{name}"


def held_bytes(name: str) -> float:
    """Return the bytes per weight of a matrix in memory in the format *name*."""
    return HELD_BYTES.get(name, FORMATS[name])
