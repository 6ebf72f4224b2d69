"""The batches that a rank draws from its shard, the joined batches of all ranks, and
micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count

import torch

from simcluster.rng import numpy_stream
from simcluster.workloads.data.partition import Indices
from simcluster.workloads.data.samples import Batch, Samples


def orders(shard_of: Callable[[int], Indices], seed: int, rank: int) -> Iterator[Indices]:
    """Yield the order of the samples in each epoch of *rank*: epoch e has those of *shard_of(e)*."""
    rng = numpy_stream(seed, "batches", str(rank))
    for epoch in count():
        yield rng.permutation(shard_of(epoch))


def stream(
    train: Samples, shard_of: Callable[[int], Indices], seed: int, rank: int, size: int, steps: int, first: int = 0
) -> Iterator[Batch]:
    """Yield batches *first* to *steps* - 1 of *rank*, with *size* samples each. *seed* and *rank*
    determine all batches, and epoch e passes over the samples of *shard_of(e)*.

    Each pass is reshuffled. A batch may span two passes, so all batches have the same size, and
    samples differ by at most one in how often they are used.
    """
    passes = orders(shard_of, seed, rank)
    order = torch.from_numpy(next(passes))
    start = 0
    for step in range(steps):
        if start + size > len(order):
            order = torch.cat([order[start:], torch.from_numpy(next(passes))])
            start = 0
        chosen = order[start : start + size]
        start += size
        if step >= first:
            yield Batch(*train.each(lambda tensor, chosen=chosen: tensor.index_select(0, chosen)), step)


def joined(streams: Iterable[Iterator[Batch]]) -> Iterator[Batch]:
    """For each step, yield one batch that joins the batches of all *streams* in their order."""
    for batches in zip(*streams, strict=True):
        inputs, targets = batches[0].each(lambda *parts: torch.cat(parts), *batches[1:])
        yield Batch(inputs, targets, batches[0].step)


def micro_batches(batch: Batch, count: int) -> list[Batch]:
    """Split *batch* into *count* micro-batches of equal size, in order.

    Raise ValueError if the size of *batch* is not a multiple of *count*.
    """
    if len(batch) % count:
        raise ValueError(f"a batch of {len(batch)} does not divide into {count} micro-batches of one size")
    size = len(batch) // count
    starts = range(0, len(batch), size)
    return [Batch(*batch.each(lambda tensor, at=at: tensor[at : at + size]), batch.step) for at in starts]
