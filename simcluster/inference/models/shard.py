"""A shard of a decoder: some heads of every layer's attention, and some columns of its feed-forward network.

The split is that of Megatron-LM (Shoeybi et al. 2019, section 3). A shard gives partial sums of a layer's halves; which
nodes have the others, and how sums are taken, it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from simcluster.inference.models.architecture import Architecture, Precision
from simcluster.inference.models.decoder import Part, Read, Share
from simcluster.inference.models.matrix import Matrix


class Shard(Share):
    """The *place*-th of *count* shards of all layers and of the logits. Raises ValueError unless *count*
    divides the heads for keys and values.
    """

    def __init__(self, architecture: Architecture, read: Read, place: int, count: int, precision: Precision) -> None:
        if architecture.kv_heads % count:
            raise ValueError(f"shards: found {count}, expected a divisor of {architecture.kv_heads} heads for keys")
        begin, end = (architecture.feed_forward * i // count for i in (place, place + 1))
        kv_heads, heads = architecture.kv_heads // count, architecture.heads // count
        own = replace(architecture, heads=heads, kv_heads=kv_heads, feed_forward=end - begin)
        rows = {
            "query": (place * heads * own.head_width, (place + 1) * heads * own.head_width),
            "key": (place * kv_heads * own.head_width, (place + 1) * kv_heads * own.head_width),
            "up": (begin, end),
        }
        rows |= {"value": rows["key"], "gate": rows["up"]}
        columns = {"merge": rows["query"], "down": rows["up"]}

        def cut(name: str, layer: int | None) -> Tensor:
            whole = read(name, layer)
            if name in rows:
                return whole[slice(*rows[name])].clone()  # a view would keep all of it in memory
            return whole[:, slice(*columns[name])].clone() if name in columns else whole

        super().__init__(own, cut, 0, architecture.layers, precision)
        ends = [architecture.vocabulary * i // count for i in (place, place + 1)]
        if architecture.tied:
            self._head = self._matrices["embedding", None].part(*ends)
        else:
            self._head = Matrix(read("output", None)[slice(*ends)].clone(), precision)

    @property
    def nbytes(self) -> int:
        return super().nbytes + (0 if self.architecture.tied else self._head.nbytes)

    def _needed(self) -> list[tuple[str, int | None]]:
        return [one for one in super()._needed() if one[0] != "output"]

    @torch.no_grad()
    def embed(self, parts: Sequence[Part]) -> Tensor:
        """Return the stream (n, width) of the token ids of *parts*, one after another."""
        return torch.cat([self._embedded(part.inputs, self._positions(part)) for part in parts])

    @torch.no_grad()
    def attention(self, layer: int, parts: Sequence[Part], stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s attention adds to *stream*."""
        rows = torch.split(stream, [len(part.inputs) for part in parts])
        return torch.cat(
            [
                self._attention(layer, one, self._positions(part), part.cache)
                for part, one in zip(parts, rows, strict=True)
            ]
        )

    @torch.no_grad()
    def feed_forward(self, layer: int, parts: Sequence[Part], stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s feed-forward network adds to *stream*."""
        rows = torch.split(stream, [len(part.inputs) for part in parts])
        return torch.cat([self._feed_forward(layer, one) for one in rows])

    def finish(self, parts: Sequence[Part]) -> None:
        """Count the tokens of *parts* as cached: all layers have had them."""
        for part in parts:
            part.cache.length += len(part.inputs)

    @torch.no_grad()
    def logits(self, stream: Tensor) -> Tensor:
        """Return this shard's columns of the logits of the rows of *stream*."""
        return torch.cat([self._head.product(self._norm("norm", None, row)) for row in torch.split(stream, 1)])

    @staticmethod
    def _positions(part: Part) -> Tensor:
        return torch.arange(part.cache.length, part.cache.length + len(part.inputs))
