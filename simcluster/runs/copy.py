"""One node's weights, copied at a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Copy(NamedTuple):
    """A node's weights when it had made *step*, at *time_s*: *values* of *size_bytes*, of the numpy type *kind*."""

    time_s: float
    step: int
    kind: str
    size_bytes: int
    values: bytes

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self.values, dtype=self.kind).astype(np.float64)
