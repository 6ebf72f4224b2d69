"""Iterable sets of samples. They are read in order and dealt to ranks by number, so that they are
never whole in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from simcluster.errors import UsageError
from simcluster.workloads.data.datasets import FORMS, collate_of, collated, of_items
from simcluster.workloads.data.partition import Indices
from simcluster.workloads.data.samples import Batch, Samples


class IterableData:
    """An iterable set of (input, target) pairs or dicts, which is read pass after pass in its own
    order.

    The joined batch of step s consists of the items after those of step s - 1. Each rank takes a
    slice of it, so N ranks train on the same samples as one process. Every rank reads all items and
    keeps those of its slice. A run that resumes reads the items again up to its step, so each pass
    must yield the same items; this is checked for the first *looked_at* items.
    """

    def __init__(self, data: Any, name: str, looked_at: int, *, own_loss: bool = False) -> None:
        self._name, self._own_loss = name, own_loss
        self._collate = collate_of(data, name) if isinstance(data, DataLoader) else None
        of_loader: Any = data.dataset if isinstance(data, DataLoader) else data
        self._data = of_loader
        if iter(self._data) is self._data:
            found = f"a {type(self._data).__name__}, an iterator, which can be read only once"
            raise UsageError(name, found, FORMS)
        self.head = self._samples(list(islice(self._data, looked_at)))
        again = self._samples(list(islice(self._data, looked_at)))
        pairs = zip(self.head.tensors, again.tensors, strict=True)
        if len(again) != len(self.head) or not all(a.is_meta or torch.equal(a, b) for a, b in pairs):
            found = f"a {type(self._data).__name__} whose second pass yields other items than its first"
            expected = "the same in each pass, as every rank and a run that resumes read it again: seed it in __iter__"
            raise UsageError(name, found, expected)

    def batches(self, rank: int, sizes: Sequence[int], steps: int, first: int = 0) -> Iterator[Batch]:
        """Yield batches *first* to *steps* - 1 of *rank*; *sizes* are the batch sizes of all ranks."""
        if first >= steps:
            return
        items, size = self._items(), sizes[rank]
        between = sum(sizes) - size
        skip = first * sum(sizes) + sum(sizes[:rank])
        for step in range(first, steps):
            chosen = self._samples(list(islice(items, skip, skip + size)))
            yield Batch(chosen.inputs, chosen.targets, step)
            skip = between

    def _items(self) -> Iterator[Any]:
        while True:
            found = False
            for item in self._data:
                found = True
                yield item
            if not found:
                raise UsageError(self._name, "a pass without an item", "the same items in each pass")

    def _samples(self, items: list[Any]) -> Samples:
        if self._collate is not None and items:
            return collated(self._collate, items, self._name, own_loss=self._own_loss)
        return of_items(items, self._name, own_loss=self._own_loss, what=f"a {type(self._data).__name__}")


def numbers_drawn(rank: int, sizes: Sequence[int], batches: int) -> Indices:
    """Return the numbers of the items that *rank* draws from an IterableData in its first *batches* batches."""
    starts = np.arange(batches, dtype=np.int64) * sum(sizes) + sum(sizes[:rank])
    return (starts[:, None] + np.arange(sizes[rank], dtype=np.int64)).reshape(-1)
