"""Ring schedules (Patarasuk and Yuan 2009), which send the fewest bytes for an all-reduce, and only
to the next rank.

The broadcast is a scatter and an all-gather (van de Geijn 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simcluster.collectives.binomial import binomial_scatter
from simcluster.collectives.exchange import exchange, run_rounds
from simcluster.collectives.flat import as_bytes, from_bytes, length_of, lengths_of
from simcluster.collectives.held_parts import HeldParts
from simcluster.collectives.operators import Combine, plus
from simcluster.process.buffers import BUFFERS
from simcluster.rounds import Ranks, Rounds
from simcluster.shortcuts import GiveBack, shortcuts_of
from simcluster.transport import Transport

LEAST_BYTES = 64 * 1024
"""The minimum size of a chunk for which memory is registered with the transport. For smaller
chunks, a copy takes less time than the registration.
"""


async def ring_all_reduce(
    node: Transport, vector: Tensor, tag: str, *, divisor: int = 1, combine: Combine = plus
) -> Tensor:
    """Return the sum of every rank's *vector* (1-D, equal length), with the same bits on all ranks.
    *vector* is not changed.

    The sum is divided by *divisor*. No task may change *vector* until this function returns or
    raises, since *vector* is sent without a copy. Chunk c is summed in the order c, c+1, ..., c+p-1
    (mod p).
    """
    if node.size == 1 and not vector.is_meta:
        return _divided(vector.clone(), divisor)
    steps = node.size - 1  # of the reduce-scatter, and of the all-gather, in which the complete chunks go around once
    rounds = _rounds(node.size, vector.numel(), 2 * steps, first=0, adding=steps).under(tag, vector)
    if vector.is_meta:
        await run_rounds(node, rounds)
        return vector
    result = BUFFERS.empty(vector.shape, vector.dtype) if vector.is_cpu else vector.new_empty(len(vector))
    with LandedChunks(node, rounds, vector.detach(), result, combine) as held:
        await run_rounds(node, rounds, held)
    return _divided(result, divisor)


async def ring_reduce_scatter(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r. It is added
    in the order of ranks r+1, r+2, ..., r (mod p).
    """
    size, rank = node.size, node.rank
    rounds = _rounds(size, vector.numel(), size - 1, first=-1, adding=size - 1).under(tag, vector)
    if vector.is_meta:
        await run_rounds(node, rounds)
        return vector.new_empty(length_of(rank, len(vector), size))
    held = HeldParts(enumerate(vector.tensor_split(size)), vector, combine)
    await run_rounds(node, rounds, held)
    return held[rank] if size > 1 else vector.clone()


async def ring_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, in rank order."""
    size, length = node.size, tensor.numel()
    rounds = _rounds(size, length, size - 1, first=0, adding=0)
    # The name contains the length, since ranks with tensors of different lengths have different
    # schedules.
    changes = {"name": ("ring all-gather", length), "elements": lambda number, rank: length}
    rounds = rounds.under(tag, tensor, **changes)
    held = HeldParts({node.rank: tensor}, like=tensor)
    await run_rounds(node, rounds, held)
    return [held[source] for source in range(size)]


async def ring_broadcast(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank: each rank gets a part, then the parts go
    around the ring.

    Unlike in the other schedules, all ranks' *tensors* must have the shapes and dtypes of the root's.
    """
    parts = as_bytes(tensors).tensor_split(node.size)
    part = await binomial_scatter(node, parts, f"{tag}/scatter", root)
    # If the scatter's tree is not full, hold the root's neighbours until all data has left the
    # root: messages of the ring then do not compete with the scatter. In a full tree no rank is
    # that early.
    place, last = (node.rank - root) % node.size, (node.size - 1).bit_length()
    if node.size != 1 << last and place <= last:
        if place:
            await node.recv((node.rank - 1) % node.size, f"{tag}/go")
        if place < last:
            await node.send((node.rank + 1) % node.size, f"{tag}/go", None)
    found = await ring_all_gather(node, part, f"{tag}/gather")
    return list(tensors) if node.rank == root else from_bytes(torch.cat(found), tensors)


async def ring_barrier(node: Transport, tag: str) -> None:
    """Wait for all ranks. After step k each rank knows, from its left neighbour, that k + 1 other
    ranks have arrived.
    """
    for step in range(node.size - 1):
        await exchange(node, (node.rank + 1) % node.size, (node.rank - 1) % node.size, f"{tag}/{step}", None)


def _divided(total: Tensor, divisor: int) -> Tensor:
    return total if divisor == 1 else total.div_(divisor)


@lru_cache(maxsize=64)
def _rounds(size: int, length: int, count: int, first: int, adding: int) -> Rounds:
    """Return *count* rounds. In round k, rank r sends chunk r + *first* - k (mod p) to the next
    rank.

    In the first *adding* rounds the receiver adds the chunk to its own; in the others it replaces
    its own.
    """

    def elements(number: int, rank: Ranks) -> Ranks:
        shift = (first - number) % size
        if isinstance(rank, np.ndarray):
            return _twice(length, size)[shift : shift + size]
        return length_of((rank + shift) % size, length, size)

    def suffix(number: int) -> str:
        if count < size:
            return f"/{number}"
        return f"/scatter{number}" if number < adding else f"/gather{number - adding}"

    return Rounds(
        ("ring", first, length),
        count,
        to=lambda number, rank: (rank + 1) % size,
        source=lambda number, rank: (rank - 1) % size,
        elements=elements,
        suffix=suffix,
        is_constant=True,
        parts=lambda number, rank: [(rank + first - number) % size],
        adds=lambda number: number < adding,
    )


@lru_cache(maxsize=8)
def _twice(length: int, size: int) -> NDArray[np.int64]:
    """Return the lengths of all chunks, twice in a row, so that the lengths of any round, in rank
    order, are a view of the result.
    """
    found = np.array(lengths_of(length, size) * 2, dtype=np.int64)
    found.flags.writeable = False
    return found


class LandedChunks(HeldParts):
    """The chunks of *vector*, replaced one by one by their sums in *result*.

    A transport may receive sums directly into registered regions of *result*: see
    simcluster.shortcuts. When the `with` block ends, regions that the transport has not used are
    given back.
    """

    def __init__(self, node: Transport, rounds: Rounds, vector: Tensor, result: Tensor, combine: Combine) -> None:
        super().__init__(enumerate(vector.tensor_split(node.size)), vector, combine)
        self._chunks = result.tensor_split(node.size)
        self._given: dict[tuple[int, bool], GiveBack] = {}
        fast = shortcuts_of(node)
        land = None if fast is None else fast.land
        if land is None:
            return
        # A chunk's region of *result* is free from the start, so it is registered here, long before
        # the sum arrives.
        for number, (_, source, _, (part,), adds, _) in enumerate(rounds.steps(node.rank, 0)):
            if self._chunks[part].nbytes >= LEAST_BYTES:
                give_back = land(source, rounds.tag(number), self._chunks[part])
                if give_back is not None:
                    self._given[part, adds] = give_back

    def take(self, part: Any, tensor: Tensor, own: Tensor | None) -> None:
        chunk, give_back = self._chunks[part], self._given.pop((part, own is not None), None)
        if give_back is not None and tensor is not chunk:
            give_back()  # the tensor arrived before its region was registered, or does not fit
        if own is not None:
            self._combine(own, tensor, out=chunk)
        elif tensor is not chunk:
            chunk.copy_(tensor)
        self[part] = chunk

    def __enter__(self) -> LandedChunks:
        return self

    def __exit__(self, *error: object) -> None:
        for give_back in self._given.values():
            give_back()
