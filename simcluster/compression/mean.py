"""The mean over ranks of a stream of tensors, sent in compressed form.

Quantised tensors are averaged chunk by chunk, and the mean of a chunk is compressed again (Tang et
al. 2019, DoubleSqueeze; Tang et al. 2021, 1-bit Adam, section 4.2): every rank sends 2 (p-1)/p
compressed vectors, where a ring sends as many uncompressed ones. Sparse selections go to all ranks
as they are: every rank sends p-1 compressed vectors. Factors of matrices are averaged by any
all-reduce. All other sums are added in rank order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from simcluster.collectives import flatten
from simcluster.compression.codec import Codec
from simcluster.compression.compressor import VectorLayout
from simcluster.compression.factors import mean_of_factors
from simcluster.compression.kinds import compressor
from simcluster.compression.power_sgd import PowerSgd
from simcluster.compute import exchange_of
from simcluster.payload import pack
from simcluster.transport import Cost, Transport


class AllReduce(Protocol):
    """A function that returns the sum of every rank's *vector*, divided by *divisor*."""

    def __call__(self, node: Transport, vector: Tensor, tag: str, /, *, divisor: int = 1) -> Awaitable[Tensor]: ...


class Turns:
    """A queue for a stream's state: tasks use the state in the order of their turns, even if steps
    overlap and messages arrive out of order.
    """

    def __init__(self) -> None:
        self._last: asyncio.Event | None = None

    def take(self) -> AbstractAsyncContextManager[None]:
        """Take the next turn. Entering the returned context waits until the previous turn has been
        left.
        """
        before, self._last = self._last, asyncio.Event()
        return self._turn(before, self._last)

    @asynccontextmanager
    async def _turn(self, before: asyncio.Event | None, over: asyncio.Event) -> AsyncIterator[None]:
        if before is not None:
            await before.wait()
        try:
            yield
        finally:
            over.set()


class Mean:
    """A stream called *name*: each call returns the mean over ranks of a list of tensors like
    *like*.

    Every rank creates one and makes the same calls in the same order. Calls may overlap; their
    results are those of sequential calls. *all_reduce* is used for factors, and if nothing is
    compressed ("none", or a single rank). All ranks get the same bits.
    """

    def __init__(
        self, compression: str | Mapping[str, Any], node: Transport, name: str, like: Sequence[Tensor],
        all_reduce: AllReduce,
    ) -> None:  # fmt: skip
        self._node = node
        self._name = name
        self._all_reduce = all_reduce
        self._kind = compressor(compression) if node.size > 1 else None
        self._codec = Codec(self._kind, node.rng, name, like)
        self._first, self._second = Turns(), Turns()

    @cached_property
    def _outgoing(self) -> list[Codec]:
        """The streams of chunks that this rank sends, one to each rank."""
        chunks = _cut(self._codec.layout, self._node.size)
        return [Codec(self._kind, self._node.rng, f"{self._name}/to {to}", chunk) for to, chunk in enumerate(chunks)]

    @cached_property
    def _back(self) -> Codec:
        """The stream of means of the chunk that this rank averages."""
        own = _cut(self._codec.layout, self._node.size)[self._node.rank]
        return Codec(self._kind, self._node.rng, f"{self._name}/back", own)

    def checkpoint_state(self) -> dict[str, Any]:
        made = vars(self)  # a cached property is in vars only after its first use
        return {
            "whole": self._codec.checkpoint_state(),
            "outgoing": [codec.checkpoint_state() for codec in self._outgoing] if "_outgoing" in made else None,
            "back": self._back.checkpoint_state() if "_back" in made else None,
        }

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        self._codec.load_checkpoint_state(state["whole"])
        for codec, saved in zip(self._outgoing, state["outgoing"], strict=True) if state["outgoing"] else ():
            codec.load_checkpoint_state(saved)
        if state["back"] is not None:
            self._back.load_checkpoint_state(state["back"])

    async def __call__(self, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
        """Return the mean over ranks of *tensors*."""
        if self._kind is None:
            vector = flatten(tensors)
            del tensors  # *vector* is a copy, so do not hold *tensors* until the sum is complete
            mean = await self._all_reduce(self._node, vector, tag, divisor=self._node.size)
            return self._codec.layout.tensors(mean)
        if isinstance(self._kind, PowerSgd):
            async with self._first.take():
                return await mean_of_factors(self._node, self._kind, self._codec, tensors, tag, self._all_reduce)
        if self._kind.summed == "whole":
            return await self._by_whole(tensors, tag)
        return await self._by_chunks(tensors, tag)

    async def _by_whole(self, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
        async with self._first.take():
            small = await self._codec.compress(self._node, tensors)
        everybodys = await swap(self._node, [small] * self._node.size, tag)
        cost = sum_cost(self._codec, self._node.size)
        return self._codec.layout.tensors(await self._node.compute(_mean, self._codec, everybodys, cost=cost))

    async def _by_chunks(self, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
        node, size = self._node, self._node.size
        turn = self._second.take()

        # The reduce-scatter of compressed chunks: rank r gets all contributions to chunk r.
        async with self._first.take():
            cost = sum((codec.encode_cost for codec in self._outgoing[1:]), start=self._outgoing[0].encode_cost)
            small = await node.compute(self._encode_chunks, tensors, cost=cost)
        contributions = await swap(node, small, f"{tag}/scatter")

        # The all-gather of the means, which are also compressed.
        async with turn:
            cost = sum_cost(self._back, size) + self._back.encode_cost
            mean = await node.compute(self._encode_mean, contributions, cost=cost)
        means = await swap(node, [mean] * size, f"{tag}/gather")
        cost = sum((codec.decode_cost for codec in self._outgoing[1:]), start=self._outgoing[0].decode_cost)
        return await node.compute(self._decode_chunks, means, cost=cost)

    def _encode_chunks(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        chunks = flatten(tensors).tensor_split(self._node.size)
        return [codec.encode([chunk]) for codec, chunk in zip(self._outgoing, chunks, strict=True)]

    def _encode_mean(self, contributions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return self._back.encode([_mean(self._back, contributions)])

    def _decode_chunks(self, means: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        pieces = [piece for codec, mean in zip(self._outgoing, means, strict=True) for piece in codec.decode(mean)]
        return self._codec.layout.tensors(torch.cat(pieces))


async def swap(node: Transport, outgoing: Sequence[Sequence[Tensor]], tag: str) -> list[Sequence[Tensor]]:
    """Send *outgoing*, a list of tensors for each rank, and return the lists that all ranks have
    sent to this rank, in rank order.

    *outgoing* also has an entry for this rank, which is returned as it is. On a full-duplex star of
    p ranks with latency a and bandwidth B, a swap of m bytes for each rank takes a + (p-1) m/B.
    """
    exchange, others = exchange_of(node), [rank for rank in range(node.size) if rank != node.rank]
    if exchange is not None:
        node, joining = exchange.plain, exchange.leave()
        outgoing = [[*tensors, *joining] for tensors in outgoing]
    async with asyncio.TaskGroup() as group:
        for peer in others:
            group.create_task(node.send(peer, tag, pack(*outgoing[peer])))
        coming = {peer: group.create_task(node.recv(peer, tag)) for peer in others}
    own = outgoing[node.rank]
    came = [own if rank == node.rank else coming[rank].result().tensors for rank in range(node.size)]
    if exchange is None:
        return came
    parts = [exchange.split(tensors, more=1) for tensors in came]
    exchange.arrive([sum(each[1:], start=each[0]) for each in zip(*(theirs for _, theirs in parts), strict=True)])
    return [tensors for tensors, _ in parts]


@lru_cache(maxsize=64)
def _cut(layout: VectorLayout, size: int) -> list[VectorLayout]:
    """Return the layouts of the chunks of *layout*.

    They are cached, so that all ranks of a simulation, perhaps a thousand, share them.
    """
    return layout.cut(size)


def decoded_sum(codec: Codec, contributions: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the sum of all *contributions* as one vector, added in rank order."""
    total = flatten(codec.decode(contributions[0]))
    for parts in contributions[1:]:
        total.add_(flatten(codec.decode(parts)))
    return total


def _mean(codec: Codec, contributions: Sequence[Sequence[Tensor]]) -> Tensor:
    return decoded_sum(codec, contributions).div_(len(contributions))


def sum_cost(codec: Codec, size: int) -> Cost:
    """Return the cost of decoding *size* contributions, adding them and dividing."""
    number_bytes = codec.layout.length * codec.layout.dtype.itemsize
    one, add = codec.decode_cost, Cost(float(codec.layout.length), 3.0 * number_bytes, 1)
    flops, memory_bytes = size * (one.flops + add.flops), size * (one.memory_bytes + add.memory_bytes)
    return Cost(flops, memory_bytes, size * (one.operators + add.operators))
