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
from simcluster.inference.models.decoder import Part, Pass, Read, Share
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
                return whole[slice(*rows[name])]
            return whole[:, slice(*columns[name])] if name in columns else whole

        self._logit_rows = slice(*(architecture.vocabulary * i // count for i in (place, place + 1)))
        self._now: Pass | None = None
        super().__init__(own, cut, 0, architecture.layers, precision)

    def _load_ends(self) -> None:
        table = self._tensor("embedding")
        self._matrices["embedding", None] = Matrix(table, self._precision, table=True, multiplies=False)
        self._load_positions()
        self._vectors["norm", None] = self._tensor("norm").clone()
        head = table if self.architecture.tied else self._tensor("output")
        self._matrices["head", None] = Matrix(head[self._logit_rows].clone(), self._precision)

    @torch.no_grad()
    def embed(self, parts: Sequence[Part]) -> Tensor:
        """Return the stream (n, width) of the token ids of *parts*, one after another."""
        return self._embedded(self._pass(parts))

    @torch.no_grad()
    def attention(self, layer: int, parts: Sequence[Part], stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s attention adds to *stream*."""
        return self._attention(layer, stream, self._pass(parts))

    @torch.no_grad()
    def feed_forward(self, layer: int, parts: Sequence[Part], stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s feed-forward network adds to *stream*."""
        return self._feed_forward(layer, stream, self._pass(parts))

    def finish(self, parts: Sequence[Part]) -> None:
        """Count the tokens of *parts* as cached: all layers have had them."""
        self._pass(parts).end()
        self._now = None

    @torch.no_grad()
    def logits(self, stream: Tensor) -> Tensor:
        """Return this shard's columns of the logits of the rows of *stream*."""
        return self._logits(stream, [1] * len(stream))

    def _pass(self, parts: Sequence[Part]) -> Pass:
        if self._now is None or self._now.parts is not parts:
            self._now = Pass(parts, self.architecture, self._rotation)
        return self._now
