"""A shard: the work of one node's heads and columns, in every layer, on a batch."""

from __future__ import annotations

from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from simcluster.lm.engine.batch import EngineBatch
from simcluster.lm.engine.stage import Chosen, Costs, Sampled, Sequences, StageMemory, unknown
from simcluster.lm.models.decoder import Pass
from simcluster.lm.models.shard import DecoderShard
from simcluster.lm.plan.shape import ModelShape


class EngineShard(Protocol):
    """One node's share of every layer. All methods are work for its device, for one batch after another."""

    @property
    def costs(self) -> Costs: ...

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float: ...

    def embed(self, batch: EngineBatch, tokens: Tensor) -> Tensor:
        """Begin *batch*; return the stream of its *tokens*."""

    def attention(self, layer: int, stream: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return *stream* with *total* added to it, and this shard's part of the sum that follows."""

    def feed_forward(self, layer: int, stream: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """See `attention`."""

    def finish(self, stream: Tensor, total: Tensor) -> Tensor:
        """End the batch; return its stream after all layers."""

    def logits(self, batch: EngineBatch, stream: Tensor) -> Tensor:
        """Return this shard's columns of the logits of the pieces of *batch* that sample."""

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the tokens that those pieces get, from all columns."""


class RealShard(StageMemory):
    """The shard that has *weights*, one of *count* of a model of this *shape*."""

    def __init__(self, weights: DecoderShard, shape: ModelShape, count: int, sampled: Sampled) -> None:
        super().__init__(Costs(shape, shape.layers, 1 / count), weights.nbytes, count)
        self._weights, self._sequences = weights, Sequences(weights.cache, sampled)
        self._pass: Pass | None = None

    @property
    def _now(self) -> Pass:
        assert self._pass is not None, "a batch begins with `embed`"
        return self._pass

    def embed(self, batch: EngineBatch, tokens: Tensor) -> Tensor:
        self._note(batch)
        self._pass = self._weights.begin(self._sequences.parts(batch, tokens))
        return self._weights.embed(self._pass)

    def attention(self, layer: int, stream: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        stream = stream if total is None else stream + total
        return stream, self._weights.attention(layer, self._now, stream)

    def feed_forward(self, layer: int, stream: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        stream = stream + total
        return stream, self._weights.feed_forward(layer, self._now, stream)

    def finish(self, stream: Tensor, total: Tensor) -> Tensor:
        self._now.end()
        return stream + total

    def logits(self, batch: EngineBatch, stream: Tensor) -> Tensor:
        ends = accumulate(piece.count for piece in batch.pieces)
        rows = [row for piece, end in zip(batch.pieces, ends, strict=True) for row in range(end - piece.rows, end)]
        return self._weights.logits(stream[rows])

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        return self._sequences.choose(batch, logits)


class TimedShard(StageMemory):
    """The *place*-th of *count* shards without weights: tensors have sizes alone, and no token is known."""

    def __init__(self, shape: ModelShape, place: int, count: int) -> None:
        super().__init__(Costs(shape, shape.layers, 1 / count), shape.shard_bytes(1 / count), count)
        self._columns = shape.vocabulary * (place + 1) // count - shape.vocabulary * place // count

    def embed(self, batch: EngineBatch, tokens: Tensor) -> Tensor:
        self._note(batch)
        return torch.empty(batch.tokens, self.costs.shape.width, device="meta")

    def attention(self, layer: int, stream: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        return stream, torch.empty_like(stream)

    def feed_forward(self, layer: int, stream: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        return stream, torch.empty_like(stream)

    def finish(self, stream: Tensor, total: Tensor) -> Tensor:
        return stream

    def logits(self, batch: EngineBatch, stream: Tensor) -> Tensor:
        return torch.empty(batch.rows, self._columns, device="meta")

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        return unknown(batch)
