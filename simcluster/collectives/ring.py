"""Ring schedules (Patarasuk and Yuan 2009): the fewest bytes for an all-reduce, sent only to the next rank.

The broadcast is a scatter and an all-gather (van de Geijn 1994).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simcluster.collectives.binomial import binomial_scatter
from simcluster.collectives.exchange import exchange, run_rounds, skipped
from simcluster.collectives.flat import as_bytes, from_bytes, length_of, lengths_of
from simcluster.payload import Message, lend
from simcluster.process.buffers import BUFFERS
from simcluster.rounds import Ranks, Rounds
from simcluster.transport import OptionalVerbs, Transport

LEAST_BYTES = 64 * 1024
"""Below this size, registering a place takes longer than copying."""


async def ring_all_reduce(node: Transport, vector: Tensor, tag: str, *, divisor: int = 1) -> Tensor:
    """Return the sum of every rank's *vector* (1-D, equal length), the same bits on all ranks; *vector* is not changed.

    The sum is divided by *divisor*. No task may change *vector* until this returns or raises: it is sent from where it
    is. Chunk c is summed in the order c, c+1, ..., c+p-1 (mod p).
    """
    size, rank = node.size, node.rank
    if size == 1 and not vector.is_meta:
        return _divided(vector.clone(), divisor)
    if vector.is_meta:
        phases = [f"{tag}/scatter", f"{tag}/gather"]

        def tag_of(number: int) -> str:
            return f"{phases[number // (size - 1)]}{number % (size - 1)}"

        await run_rounds(node, _rounds(size, vector, 2 * (size - 1), tag_of, first=0))
        return vector
    right, left = (rank + 1) % size, (rank - 1) % size
    result = BUFFERS.empty(vector.shape, vector.dtype) if vector.is_cpu else vector.new_empty(len(vector))
    own, chunks = vector.detach().tensor_split(size), result.tensor_split(size)
    outgoing = own[rank]
    with Landings(node, left) as landings:
        # A chunk's place is free long before its sum arrives, which depends on the chunk's values.
        for step in range(size - 1):
            landings.add(f"{tag}/scatter{step}", chunks[(rank - step - 1) % size])
        for step in range(size - 1):
            landings.add(f"{tag}/gather{step}", chunks[(rank - step) % size])

        # reduce-scatter: after p-1 steps rank r holds the sum of chunk r+1
        for step in range(size - 1):
            message = await exchange(node, right, left, f"{tag}/scatter{step}", lend(outgoing))
            number = (rank - step - 1) % size
            arrived = landings.received(message)
            if arrived.shape != own[number].shape:
                lengths = f"{len(own[number])} numbers, rank {left}'s {len(arrived)}; expected vectors of one length"
                raise ValueError(f"{tag!r}: chunk {number} of rank {rank} has {lengths}")
            outgoing = torch.add(own[number], arrived, out=chunks[number])

        # all-gather: the complete chunks go around once
        for step in range(size - 1):
            message = await exchange(node, right, left, f"{tag}/gather{step}", lend(outgoing))
            outgoing = landings.received(message, chunks[(rank - step) % size])
    return _divided(result, divisor)


async def ring_reduce_scatter(node: Transport, vector: Tensor, tag: str) -> Tensor:
    """Return part r of the sum of every rank's *vector* (1-D, equal length) on rank r, in the order r+1, ..., r."""
    size, rank = node.size, node.rank
    if vector.is_meta:
        await run_rounds(node, _rounds(size, vector, size - 1, lambda number: f"{tag}/{number}", first=-1))
        return vector.new_empty(length_of(rank, len(vector), size))
    parts = vector.tensor_split(size)
    partial = parts[(rank - 1) % size].clone()
    for step in range(size - 1):
        message = await exchange(node, (rank + 1) % size, (rank - 1) % size, f"{tag}/{step}", lend(partial))
        partial = message.tensor.add_(parts[(rank - step - 2) % size])
    return partial


async def ring_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, of any shape, by rank."""
    size, rank = node.size, node.rank
    found, over = {rank: tensor}, 0
    if tensor.is_meta and tensor.dim() == 1:
        over = await skipped(node, _gather_rounds(size, tensor, tag))
        found |= {(rank - step - 1) % size: tensor for step in range(over)}  # of one shape on all ranks, without values
    for step in range(over, size - 1):
        outgoing = lend(found[(rank - step) % size])
        message = await exchange(node, (rank + 1) % size, (rank - 1) % size, f"{tag}/{step}", outgoing)
        found[(rank - step - 1) % size] = message.tensor
    return [found[source] for source in range(size)]


async def ring_broadcast(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank: a part to each, then the parts go around the ring.

    Unlike in the other schedules, all ranks' *tensors* must have the shapes and dtypes of the root's.
    """
    parts = as_bytes(tensors).tensor_split(node.size)
    part = await binomial_scatter(node, parts, f"{tag}/scatter", root)
    # If the scatter's tree is not full, hold the root's neighbours until all data has left the root: messages of the
    # ring then do not compete with the scatter. In a full tree no rank is early enough for that.
    place, last = (node.rank - root) % node.size, (node.size - 1).bit_length()
    if node.size != 1 << last and place <= last:
        if place:
            await node.recv((node.rank - 1) % node.size, f"{tag}/go")
        if place < last:
            await node.send((node.rank + 1) % node.size, f"{tag}/go", None)
    found = await ring_all_gather(node, part, f"{tag}/gather")
    return list(tensors) if node.rank == root else from_bytes(torch.cat(found), tensors)


async def ring_barrier(node: Transport, tag: str) -> None:
    """Wait for all ranks: after step k each rank has heard, through its left neighbour, of k ranks."""
    for step in range(node.size - 1):
        await exchange(node, (node.rank + 1) % node.size, (node.rank - 1) % node.size, f"{tag}/{step}", None)


def _divided(total: Tensor, divisor: int) -> Tensor:
    return total if divisor == 1 else total.div_(divisor)


def _rounds(size: int, vector: Tensor, count: int, tag: Callable[[int], str], first: int) -> Rounds:
    """Return *count* rounds of messages without values: in round k rank r sends chunk r + *first* - k (mod p)."""
    length = len(vector)

    def chunk(number: int, rank: Ranks) -> Ranks:
        shift = (first - number) % size
        if isinstance(rank, np.ndarray):
            return _twice(length, size)[shift : shift + size]
        return length_of((rank + shift) % size, length, size)

    return Rounds(
        ("ring", first, length),
        count,
        to=lambda number, rank: (rank + 1) % size,
        source=lambda number, rank: (rank - 1) % size,
        elements=chunk,
        tag=tag,
        vector=vector,
        is_constant=True,
    )


def _gather_rounds(size: int, tensor: Tensor, tag: str) -> Rounds:
    """Return the all-gather's messages if all ranks' tensors are equally long: *name* differs otherwise."""
    length = tensor.numel()
    return Rounds(
        ("ring all-gather", length),
        size - 1,
        to=lambda number, rank: (rank + 1) % size,
        source=lambda number, rank: (rank - 1) % size,
        elements=lambda number, rank: length,
        tag=lambda number: f"{tag}/{number}",
        vector=tensor,
        is_constant=True,
    )


@lru_cache(maxsize=8)
def _twice(length: int, size: int) -> NDArray[np.int64]:
    """Return the lengths of all chunks twice: all ranks' chunks of a round are a view of them, not a computation."""
    found = np.array(lengths_of(length, size) * 2, dtype=np.int64)
    found.flags.writeable = False
    return found


class Landings:
    """Places for tensors still to come from rank *source*, so that a transport can receive them there.

    All are released when the `with` block ends. See `OptionalVerbs.land`.
    """

    def __init__(self, node: Transport, source: int) -> None:
        self._land = cast(OptionalVerbs, node).land if hasattr(node, "land") else None
        self._source = source
        self._given: dict[str, tuple[Tensor, Callable[[], None]]] = {}

    def add(self, tag: str, place: Tensor) -> None:
        """Receive the next message under *tag* into *place*, if possible."""
        if self._land is not None and place.nbytes >= LEAST_BYTES:
            give_back = self._land(self._source, tag, place)
            if give_back is not None:
                self._given[tag] = place, give_back

    def received(self, message: Message, place: Tensor | None = None) -> Tensor:
        """Return the tensor of the received *message*, in *place* if one is given."""
        named, give_back = self._given.pop(message.tag, (None, None))
        if give_back is not None and message.tensor is not named:
            give_back()  # it arrived before its place was registered, or is not as expected
        return message.tensor if place is None or message.tensor is place else place.copy_(message.tensor)

    def __enter__(self) -> Landings:
        return self

    def __exit__(self, *error: object) -> None:
        for _, give_back in self._given.values():
            give_back()
