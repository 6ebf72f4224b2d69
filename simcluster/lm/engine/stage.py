"""A stage: the work of one node's layers on a batch, and what that work costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from simcluster.lm.engine.batch import EngineBatch, NewSequence
from simcluster.lm.models.decoder import Cache, DecoderShare, SequencePart
from simcluster.lm.models.logprobs import rows_of
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import NO_LOGPROBS, Sampling
from simcluster.transport import FREE, Cost

UNKNOWN = -1
"""The token that a stage without numerics chooses."""

Sampled = Callable[[Tensor, Sampling, int], int]
"""The choice of a token from logits, for a sampling and a place in the sequence."""


Chosen: TypeAlias = tuple[Tensor, ...]
"""Tokens; how many of them each piece that samples gets, in order, unless all get one; and if a piece asks for
log-probabilities, also ids and log-probabilities: a row for each token, as `logprobs.rows_of` has them.
"""


def unknown(batch: EngineBatch) -> Chosen:
    """Return a token that is not known for each of the pieces that sample."""
    return (torch.full((batch.samples,), UNKNOWN, dtype=torch.int32),)


class Stage(Protocol):
    """The layers of one node. `forward` and `choose` are work for its device."""

    @property
    def costs(self) -> Costs: ...

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float:
        """The most bytes of keys and values that it held at once."""

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        """Return the stream of *batch* from its tokens or stream, *inputs*; of the last stage, the logits of every
        piece that samples.
        """

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the tokens that the pieces of *batch* that sample get."""

    def copy_out(self, slot: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the first *tokens* of the sequence *slot*."""

    def take_in(self, opened: NewSequence, keys: Tensor, values: Tensor) -> None:
        """Begin a sequence with *keys* and *values* that `copy_out` gave elsewhere."""


@dataclass(frozen=True)
class Costs:
    """The costs of *share* of *layers* of *shape*."""

    shape: ModelShape
    layers: int
    share: float = 1.0

    def layers_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of the layers. The device reads their weights once for the whole batch."""
        return self.shape.layers_cost(self.layers, _groups(batch), self.share) + self._copies(batch, self.layers)

    def attention_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of one layer's attention."""
        return self.shape.attention_cost(_groups(batch), self.share) + self._copies(batch, 1)

    def feed_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of one layer's feed-forward network."""
        return self.shape.feed_cost(_groups(batch), self.share)

    def _copies(self, batch: EngineBatch, layers: int) -> Cost:
        """Return the cost of the prefixes that are copied: each is read and written."""
        return replace(self, layers=layers).copy_of(sum(one.prefix for one in batch.opened))

    def copy_of(self, tokens: int) -> Cost:
        """Return the cost of keys and values that are copied: each is read and written."""
        return Cost(0.0, 2 * self.share * self.shape.cache_bytes(self.layers, tokens))

    def head_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of the logits of the pieces that sample."""
        return self.shape.head_cost(batch.rows, self.share) if batch.rows else FREE


def _groups(batch: EngineBatch) -> list[tuple[int, int, int]]:
    return [(1, piece.count, piece.start) for piece in batch.pieces]


class StageMemory:
    """The bytes of a stage, or of one of *count* shards: those of its weights, and the most that cached tokens took."""

    def __init__(self, costs: Costs, weight_bytes: float, count: int = 1) -> None:
        self.costs, self.weight_bytes, self.peak_cache_bytes = costs, weight_bytes, 0.0
        self._per_token = costs.shape.cache_bytes(costs.layers, 1) / count
        self._lengths: dict[int, int] = {}

    def _note(self, batch: EngineBatch) -> None:
        for slot in batch.closed:
            self._lengths.pop(slot, None)
        for piece in batch.pieces:
            self._lengths[piece.slot] = piece.start + piece.count
        self.peak_cache_bytes = max(self.peak_cache_bytes, self._per_token * sum(self._lengths.values()))


class Sequences:
    """The sequences of a stage with real weights: their caches, which *make* makes, and how their tokens are chosen.

    A sequence's room is made for all of its tokens at once. Pages that no token has reached take no memory yet.
    """

    def __init__(self, make: Callable[[int], Cache], sampled: Sampled) -> None:
        self._make, self._sampled = make, sampled
        self._caches: dict[int, Cache] = {}
        self._opened: dict[int, NewSequence] = {}

    def parts(self, batch: EngineBatch, inputs: Tensor) -> list[SequencePart]:
        """Make room and forget as *batch* says; return its pieces with their rows of *inputs*."""
        for one in batch.opened:
            cache = self._caches[one.slot] = self._make(one.capacity)
            self._opened[one.slot] = one
            if one.prefix:
                source = self._caches[one.source]
                cache.keys[:, :, : one.prefix] = source.keys[:, :, : one.prefix]
                cache.values[:, :, : one.prefix] = source.values[:, :, : one.prefix]
                cache.length = one.prefix
        for slot in batch.closed:  # one of a batch that was taken back may never have been opened
            self._caches.pop(slot, None)
            self._opened.pop(slot, None)
        for piece in batch.pieces:
            self._caches[piece.slot].length = piece.start
        rows = torch.split(inputs, [piece.count for piece in batch.pieces])
        return [SequencePart(self._caches[piece.slot], own) for piece, own in zip(batch.pieces, rows, strict=True)]

    def copy_out(self, slot: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the first *tokens* of *slot*."""
        cache = self._caches[slot]
        return cache.keys[:, :, :tokens].clone(), cache.values[:, :, :tokens].clone()

    def take_in(self, opened: NewSequence, keys: Tensor, values: Tensor) -> None:
        """Begin a sequence with *keys* and *values*."""
        cache = self._caches[opened.slot] = self._make(opened.capacity)
        self._opened[opened.slot] = opened
        cache.length = keys.shape[2]
        cache.keys[:, :, : cache.length], cache.values[:, :, : cache.length] = keys, values

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the next tokens of the pieces that sample, from their rows of *logits*.

        A guess that is right is followed by the token after it; a wrong one is replaced, and the next ones are dropped.
        """
        chosen, counts, row = list[int](), list[int](), 0
        rows, asked = list[int](), list[int]()  # of each token: its row of the logits, and what its request asks for
        for piece in batch.pieces:
            if not piece.samples:
                continue
            opened, place = self._opened[piece.slot], piece.start + piece.count - len(piece.guesses)
            before = len(chosen)
            for offset in range(piece.rows):
                chosen.append(self._sampled(logits[row + offset], opened.sampling, place + offset))
                if offset < len(piece.guesses) and chosen[-1] != piece.guesses[offset]:
                    break
            counts.append(len(chosen) - before)
            rows += range(row, row + counts[-1])
            asked += [opened.logprobs] * counts[-1]
            row += piece.rows
        found = torch.tensor(chosen, dtype=torch.int32), torch.tensor(counts, dtype=torch.int32)
        asks = any(count != NO_LOGPROBS for count in asked)
        if asks:
            return (*found, *rows_of(logits[rows], chosen, asked))
        return found if batch.guesses else found[:1]


class RealStage(StageMemory):
    """The stage of a *share* of a model, of this *shape*: real weights, a cache for every sequence."""

    def __init__(self, share: DecoderShare, shape: ModelShape, sampled: Sampled) -> None:
        super().__init__(Costs(shape, share.last - share.first), share.nbytes)
        self._share, self._sequences = share, Sequences(share.cache, sampled)
        self.choose, self.copy_out = self._sequences.choose, self._sequences.copy_out
        self.take_in = self._sequences.take_in

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        self._note(batch)
        rows = [piece.rows for piece in batch.pieces]
        return torch.cat(self._share.forward(self._sequences.parts(batch, inputs), rows))


class TimedStage(StageMemory):
    """A stage of the layers [*first*, *last*) without weights: tensors have sizes alone, and no token is known."""

    def __init__(self, shape: ModelShape, first: int, last: int) -> None:
        self._ends = last == shape.layers
        ends_bytes = shape.ends_bytes(first == 0, self._ends)
        super().__init__(Costs(shape, last - first), (last - first) * shape.layer_bytes + ends_bytes)

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        self._note(batch)
        shape = self.costs.shape
        size = (batch.rows, shape.vocabulary) if self._ends else (batch.tokens, shape.width)
        return torch.empty(size, device="meta")

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        return unknown(batch)

    def copy_out(self, slot: int, tokens: int) -> tuple[Tensor, Tensor]:
        half = torch.empty(
            round(self.costs.shape.cache_bytes(self.costs.layers, tokens) / 2), dtype=torch.uint8, device="meta"
        )
        return half, half

    def take_in(self, opened: NewSequence, keys: Tensor, values: Tensor) -> None:
        return
