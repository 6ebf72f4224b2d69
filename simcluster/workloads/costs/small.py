"""The sketch of a small model with work that never depends on values. Its costs are counted on zeros.

To work without values, torch imports its compiler. For a small model, this takes longer than
computing the model.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.costs.sketch import Sketch

T = TypeVar("T")

MOST_BYTES = 2**23
"""The maximum size of a small model's weights."""

MOST_PRODUCTS = 2**29
"""The maximum product of a small model's number of weights and the samples (or tokens) of a step:
about 0.2 s on one core.
"""


def is_small(weights_bytes: int, samples: int) -> bool:
    """Return whether a model with *weights_bytes* of weights is small for a batch of *samples*
    samples or tokens.
    """
    return weights_bytes <= MOST_BYTES and weights_bytes // 4 * samples <= MOST_PRODUCTS


class SmallSketch(Sketch):
    """A Sketch on real tensors; nothing reads their values. See `Workload.value_free`."""

    def mode(self) -> AbstractContextManager[object]:
        return nullcontext()

    def run(self, what: str, work: Callable[[], T]) -> T:
        return Counter.run(self, what, work)

    def like(self, tensor: Tensor) -> Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
