"""A stage: the work of one node's layers on a batch, and what that work costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from simcluster.inference.engine.batch import Batch, Opened
from simcluster.inference.models.decoder import Cache, Part, Share
from simcluster.inference.plan.shape import Shape
from simcluster.inference.request import Sampling
from simcluster.transport import Cost

UNKNOWN = -1
"""The token that a stage without numerics chooses."""

Sampled = Callable[[Tensor, Sampling, int], int]
"""The choice of a token from logits, for a sampling and a place in the sequence."""


class Stage(Protocol):
    """The layers of one node. `forward` and `choose` are work for its device."""

    @property
    def costs(self) -> Costs: ...

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float:
        """The most bytes of keys and values that it held at once."""

    def forward(self, batch: Batch, inputs: Tensor) -> Tensor:
        """Return the stream of *batch*, whose tokens or stream are *inputs*; of the last stage, the logits of every
        piece that samples.
        """

    def choose(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return the tokens that the pieces of *batch* that sample get."""


@dataclass(frozen=True)
class Costs:
    """The costs of *layers* of *shape*, of which a node does *share*."""

    shape: Shape
    layers: int
    share: float = 1.0

    def layers_of(self, batch: Batch) -> Cost:
        """Return the cost of the layers. The device reads their weights once for the whole batch."""
        groups = [(1, piece.count, piece.start) for piece in batch.pieces]
        return self.shape.layers_cost(self.layers, groups, self.share)

    def head_of(self, batch: Batch) -> Cost:
        """Return the cost of the logits of the pieces that sample."""
        return self.shape.head_cost(batch.samples, self.share)


class Held:
    """The tokens whose keys and values a stage holds, and the peak of the *bytes* that they take."""

    def __init__(self, bytes_per_token: float) -> None:
        self._per_token, self._lengths = bytes_per_token, dict[int, int]()
        self.peak_bytes = 0.0

    def note(self, batch: Batch) -> None:
        for slot in batch.closed:
            self._lengths.pop(slot, None)
        for piece in batch.pieces:
            self._lengths[piece.slot] = piece.start + piece.count
        self.peak_bytes = max(self.peak_bytes, self._per_token * sum(self._lengths.values()))


class RealStage:
    """The stage of a *share* of a model: real weights, a cache for every sequence.

    A sequence's room is made for all of its tokens at once. Pages that no token has reached take no memory yet.
    """

    def __init__(self, share: Share, shape: Shape, sampled: Sampled) -> None:
        layers = share.last - share.first
        self.costs = Costs(shape, layers)
        self._share, self._sampled = share, sampled
        self._held = Held(shape.cache_bytes(layers, 1))
        self._caches: dict[int, Cache] = {}
        self._opened: dict[int, Opened] = {}

    @property
    def weight_bytes(self) -> float:
        return self._share.nbytes

    @property
    def peak_cache_bytes(self) -> float:
        return self._held.peak_bytes

    def forward(self, batch: Batch, inputs: Tensor) -> Tensor:
        self._held.note(batch)
        for slot in batch.closed:
            del self._caches[slot], self._opened[slot]
        for one in batch.opened:
            self._caches[one.slot], self._opened[one.slot] = self._share.cache(one.capacity), one
        counts = [piece.count for piece in batch.pieces]
        parts = [
            Part(self._caches[piece.slot], rows)
            for piece, rows in zip(batch.pieces, torch.split(inputs, counts), strict=True)
        ]
        outputs = self._share.forward(parts)
        if not self._share.ends:
            return torch.cat(outputs)
        rows = [rows[-1] for piece, rows in zip(batch.pieces, outputs, strict=True) if piece.samples]
        return torch.stack(rows) if rows else torch.empty(0, self.costs.shape.vocabulary)

    def choose(self, batch: Batch, logits: Tensor) -> Tensor:
        places = [(piece.slot, piece.start + piece.count) for piece in batch.pieces if piece.samples]
        chosen = [
            self._sampled(row, self._opened[slot].sampling, place)
            for row, (slot, place) in zip(logits, places, strict=True)
        ]
        return torch.tensor(chosen, dtype=torch.int32)


class TimedStage:
    """A stage of the layers [*first*, *last*) without weights: tensors have sizes alone, and no token is known."""

    def __init__(self, shape: Shape, first: int, last: int) -> None:
        self.costs = Costs(shape, last - first)
        self._ends = last == shape.layers
        self._held = Held(shape.cache_bytes(last - first, 1))
        self.weight_bytes = (last - first) * shape.layer_bytes + shape.ends_bytes(first == 0, self._ends)

    @property
    def peak_cache_bytes(self) -> float:
        return self._held.peak_bytes

    def forward(self, batch: Batch, inputs: Tensor) -> Tensor:
        self._held.note(batch)
        shape = self.costs.shape
        size = (batch.samples, shape.vocabulary) if self._ends else (batch.tokens, shape.width)
        return torch.empty(size, device="meta")

    def choose(self, batch: Batch, logits: Tensor) -> Tensor:
        return torch.full((batch.samples,), UNKNOWN, dtype=torch.int32)
