"""A shard of a decoder: some heads of every layer's attention, and some columns of its feed-forward network.

The split is that of Megatron-LM (Shoeybi et al. 2019, section 3). A shard gives partial sums of a layer's halves; which
nodes have the others, and how sums are taken, it does not know.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from simcluster.lm.models.architecture import Architecture, Precision
from simcluster.lm.models.decoder import DecoderShare, Pass, Read


class DecoderShard(DecoderShare):
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

        def cut(name: str, layer: int | None, first: int, last: int) -> Tensor:
            offset = rows[name][0] if name in rows else 0
            found = read(name, layer, offset + first, offset + last)
            return found[:, slice(*columns[name])] if name in columns else found

        self._vocabulary = [architecture.vocabulary * i // count for i in (place, place + 1)]
        super().__init__(own, cut, 0, architecture.layers, precision)

    def _load_ends(self) -> None:
        """Read this shard's rows of the head, and the whole table of embeddings. Rows of both are stored once."""
        (first, last), tied = self._vocabulary, self.architecture.tied
        name = "embedding" if tied else "output"
        rows, columns = self._shape(name)
        head = self._matrix(self._pieces(name, None, first, last), (last - first, columns), table=tied)
        self._matrices["head", None] = head
        self._vectors["norm", None] = self._vector("norm")
        if tied:
            others = [self._table(name, *span) if span[0] < span[1] else None for span in ((0, first), (last, rows))]
            self._tables = [part for part in (others[0], head, others[1]) if part is not None]
        else:
            self._tables = [self._table("embedding")]
        self._load_positions()

    @torch.no_grad()
    def embed(self, now: Pass) -> Tensor:
        """Return the stream (n, width) of the tokens of *now*."""
        return self._embedded(now)

    @torch.no_grad()
    def attention(self, layer: int, now: Pass, stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s attention adds to *stream*."""
        return self._attention(layer, stream, now)

    @torch.no_grad()
    def feed_forward(self, layer: int, now: Pass, stream: Tensor) -> Tensor:
        """Return this shard's part of the sum that *layer*'s feed-forward network adds to *stream*."""
        return self._feed_forward(layer, stream, now)

    @torch.no_grad()
    def logits(self, stream: Tensor) -> Tensor:
        """Return this shard's columns of the logits of the rows of *stream*, each of another sequence."""
        return self._logits(stream, [1] * len(stream))
