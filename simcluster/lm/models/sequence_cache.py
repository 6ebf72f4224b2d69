"""The keys and values of one sequence in one share's layers."""

from __future__ import annotations

import torch
from torch import Tensor


class SequenceCache:
    """Room for the keys and values of *capacity* tokens in the layers from *first* on.

    The memory is allocated at once; on the CPU, the system provides its pages once they are
    written. *shape* is (layers, KV heads, width of a head).
    """

    def __init__(
        self, first: int, shape: tuple[int, int, int], capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        layers, heads, width = shape
        # Not zeros, which would be written at once; no key beyond `length` is read.
        self.keys = torch.empty(layers, heads, capacity, width, dtype=dtype, device=device)
        self.values = torch.empty_like(self.keys)
        self.capacity = capacity
        self.length = 0
        self._first = first

    def write(self, layer: int, start: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write *key* and *value* from the token *start* on; return all keys and values of *layer*.

        *layer* counts from the model's first layer. All tensors are (KV heads, tokens, width).
        """
        keys = self.keys[layer - self._first]
        values = self.values[layer - self._first]
        keys[:, start : start + key.shape[1]] = key
        values[:, start : start + value.shape[1]] = value
        return keys, values

    def copy(self, source: SequenceCache, tokens: int) -> None:
        """Begin with the first *tokens* of *source*."""
        self.fill(source.keys[:, :, :tokens], source.values[:, :, :tokens])

    def content(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Return copies of the keys and values of the first *tokens*."""
        return self.keys[:, :, :tokens].clone(), self.values[:, :, :tokens].clone()

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Begin with *keys* and *values*, (layers, heads, tokens, width)."""
        self.length = keys.shape[2]
        self.keys[:, :, : self.length], self.values[:, :, : self.length] = keys, values
