"""A shard: one node's attention heads and feed-forward columns of every layer, and their work."""

from __future__ import annotations

from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from simcluster.lm.engine.batch import EngineBatch
from simcluster.lm.engine.stage import Chosen, Costs, Sequences, StageMemory, unknown
from simcluster.lm.engine.token_history import Constrain, Sampled
from simcluster.lm.models.model_share import ModelPass, ModelShare
from simcluster.lm.plan.shape import ModelShape


class EngineShard(Protocol):
    """One node's share of every layer. Its device runs all methods, for one batch at a time.

    *stream* is the residual stream, (tokens, width). *total* is the last sum over ranks, which is
    not yet part of the stream.
    """

    @property
    def costs(self) -> Costs: ...

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float: ...

    def embed(self, batch: EngineBatch, tokens: Tensor) -> Tensor:
        """Begin *batch*; return the embeddings of *tokens*, which are the first stream."""

    def attention(self, layer: int, stream: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return *stream* plus *total*, if any, and this shard's partial attention output."""

    def feed_forward(self, layer: int, stream: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Return *stream* plus *total*, and this shard's partial MLP output."""

    def finish(self, stream: Tensor, total: Tensor) -> Tensor:
        """End the batch; return *stream* plus *total*, which is the stream after all layers."""

    def logits(self, batch: EngineBatch, stream: Tensor) -> Tensor:
        """Return this shard's columns of the logits, (`batch.rows`, columns)."""

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the tokens of the sampling pieces of *batch*, chosen from all shards' *logits*."""


class RealShard(StageMemory):
    """One of *count* shards of a model of *shape*, with real *weights*."""

    def __init__(
        self, weights: ModelShare, shape: ModelShape, count: int, sampled: Sampled, constrain: Constrain | None = None
    ) -> None:
        super().__init__(Costs(shape, shape.layers, 1 / count), weights.nbytes, count)
        self._weights = weights
        self._sequences = Sequences(weights.cache, sampled, constrain)
        self._pass: ModelPass | None = None

    @property
    def _now(self) -> ModelPass:
        assert self._pass is not None, "a batch begins with `embed`"
        return self._pass

    def embed(self, batch: EngineBatch, tokens: Tensor) -> Tensor:
        self._note(batch)
        self._pass = self._weights.begin(self._sequences.parts(batch, tokens))
        return self._weights.embed(self._pass)

    def attention(self, layer: int, stream: Tensor, total: Tensor | None) -> tuple[Tensor, Tensor]:
        if total is not None:
            stream = self._weights.after_feed(layer - 1, stream, total)
        return stream, self._weights.attention(layer, self._now, stream)

    def feed_forward(self, layer: int, stream: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        stream = self._weights.after_attention(layer, stream, total)
        return stream, self._weights.feed_forward(layer, stream)

    def finish(self, stream: Tensor, total: Tensor) -> Tensor:
        self._now.end()
        return self._weights.after_feed(self._weights.last - 1, stream, total)

    def logits(self, batch: EngineBatch, stream: Tensor) -> Tensor:
        # A piece needs the logits of its last known token and of each of its guesses.
        ends = accumulate(piece.count for piece in batch.pieces)
        rows = [row for piece, end in zip(batch.pieces, ends, strict=True) for row in range(end - piece.rows, end)]
        return self._weights.logits(stream[torch.tensor(rows, device=stream.device)])

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        return self._sequences.choose(batch, logits)


class TimedShard(StageMemory):
    """Shard *place* of *count*, without weights: its tensors have shapes but no values."""

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
