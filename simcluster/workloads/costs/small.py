"""The sketch of a small model; its work never depends on values, so its costs are counted on some.

Importing what torch needs to work without values takes longer than the work of such a model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.costs.sketch import Sketch

T = TypeVar("T")

MOST_BYTES = 2**23
"""Limit on the weights of a small model."""

MOST_PRODUCTS = 2**29
"""Limit on its weights times the samples, or tokens, of a step: about 0.2 s of one core."""


def is_small(weights_bytes: int, samples: int) -> bool:
    """Return whether a model with *weights_bytes* of weights is small for a batch of *samples*, or tokens."""
    return weights_bytes <= MOST_BYTES and weights_bytes // 4 * samples <= MOST_PRODUCTS


@dataclass(eq=False)
class SmallSketch(Sketch):
    """A Sketch with values, which nothing reads: see `Workload.value_free`."""

    def mode(self) -> AbstractContextManager[object]:
        return nullcontext()

    def run(self, what: str, work: Callable[[], T]) -> T:
        return Counter.run(self, what, work)

    def like(self, tensor: Tensor) -> Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
