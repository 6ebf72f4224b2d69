"""Convert the numbers of a tensor in a file to f32."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

WORDS: Final = {"U32": "<u4", "I32": "<u4", "U8": "u1"}
"""Integer types of safetensors in which other numbers are packed -> numpy's name."""


def small_floats(exponent: int, fraction: int) -> npt.NDArray[np.float32]:
    """Return code -> value, for floats of a sign bit, *exponent* bits and *fraction* bits."""
    codes = np.arange(2 ** (1 + exponent + fraction))
    exponents = (codes >> fraction) % 2**exponent
    fractions = codes % 2**fraction + 2**fraction * (exponents > 0)
    bias = 2 ** (exponent - 1) - 1
    found: npt.NDArray[np.float32] = np.ldexp(fractions, np.maximum(exponents, 1) - bias - fraction).astype(np.float32)
    found[len(codes) // 2 :] *= -1
    return found


E4M3: Final = small_floats(4, 3)
"""Byte -> its value in the type F8_E4M3."""

E4M3[[127, 255]] = np.nan


def in_f32(data: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[np.float32]:
    """Return the numbers in *data* in f32; *kind* is a type of GGUF or of safetensors.

    Numbers that are too large for f32 become infinite.
    """
    from gguf import GGMLQuantizationType, quants

    if kind == "F8_E4M3":
        return E4M3[data]
    with np.errstate(all="ignore"):  # a file may contain any scale
        if kind == "F64":
            return data.view("<f8").astype(np.float32)
        return quants.dequantize(data, GGMLQuantizationType[kind]).astype(np.float32, copy=False)


def numbers_in(data: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Return the numbers in *data* of the type *kind*: whole numbers as they are, others in f32."""
    return data.view(WORDS[kind]) if kind in WORDS else in_f32(data, kind)
