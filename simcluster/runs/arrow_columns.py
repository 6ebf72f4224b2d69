"""Arrow arrays made from buffers.

pyarrow's own conversion imports pandas, and that import takes longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def floats(values: ArrayLike) -> pa.Array:
    """Return *values* as 64-bit floating-point numbers."""
    import pyarrow as pa

    return _numbers(np.asarray(values, dtype=np.float64), pa.float64())


def whole(values: ArrayLike, bits: int = 64) -> pa.Array:
    """Return *values* as integers of 32 or 64 *bits*."""
    import pyarrow as pa

    kinds: dict[int, tuple[Any, Any]] = {32: (np.int32, pa.int32()), 64: (np.int64, pa.int64())}
    own, kind = kinds[bits]
    return _numbers(np.asarray(values, dtype=own), kind)


def texts(values: Sequence[str]) -> pa.Array:
    """Return *values* as strings."""
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def categories(values: Sequence[str]) -> pa.Array:
    """Return *values*, which has few distinct strings, as a dictionary array with sorted strings."""
    import pyarrow as pa

    kinds = sorted(set(values))
    number = {kind: index for index, kind in enumerate(kinds)}
    codes = np.fromiter((number[value] for value in values), np.int32, len(values))
    known = texts(kinds)
    kind = pa.dictionary(pa.int32(), known.type)
    return pa.DictionaryArray.from_buffers(kind, len(codes), [None, pa.py_buffer(codes)], known)


def _numbers(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
