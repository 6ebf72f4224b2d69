"""A stage: the layers of one node, their work on a batch, and the cost of that work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from simcluster.compute import to_host
from simcluster.lm.engine.batch import EngineBatch, NewSequence
from simcluster.lm.engine.logprobs import rows_of
from simcluster.lm.engine.token_history import Constrain, Sampled, TokenHistory
from simcluster.lm.models.model_share import SequencePart
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import NO_LOGPROBS
from simcluster.transport import FREE, Cost

UNKNOWN = -1
"""The token that a stage without numerics chooses."""

Chosen: TypeAlias = tuple[Tensor, ...]
"""The chosen tokens of all sampling pieces and, if there are guesses, the number per piece.

If a piece asks for log-probabilities, the tuple has four tensors: these two, then the ids and the
log-probabilities from `logprobs.rows_of`, with a row per token.
"""


def unknown(batch: EngineBatch) -> Chosen:
    """Return the token UNKNOWN for each sampling piece of *batch*."""
    return (torch.full((batch.samples,), UNKNOWN, dtype=torch.int32),)


class Stage(Protocol):
    """The layers of one node. Its device runs all methods, for one batch at a time."""

    @property
    def costs(self) -> Costs: ...

    @property
    def weight_bytes(self) -> float: ...

    @property
    def peak_cache_bytes(self) -> float:
        """The peak size in bytes of the keys and values that the stage held."""

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        """Return the stream of *batch* after these layers, (tokens, width).

        *inputs* are token ids in the first stage, and the previous stage's stream in the others.
        The last stage returns logits instead, with a row for each token that needs them.
        """

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the tokens of the sampling pieces of *batch*, chosen from *logits*."""

    def copy_out(self, slot: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return copies of the keys and values of the first *tokens* of the sequence *slot*."""

    def take_in(self, opened: NewSequence, keys: Tensor, values: Tensor) -> None:
        """Begin the sequence *opened* with *keys* and *values* from another node's `copy_out`."""


@dataclass(frozen=True)
class Costs:
    """The costs of this node's *share* of the work on *layers* layers of a model of *shape*."""

    shape: ModelShape
    layers: int
    share: float = 1.0

    def layers_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of all layers for *batch*. Weights are read once for the whole batch."""
        return self._with_copies(self.shape.layers_cost(self.layers, _groups(batch), self.share), batch, self.layers)

    def attention_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of one layer's attention for *batch*."""
        return self._with_copies(self.shape.attention_cost(_groups(batch), self.share), batch, 1)

    def feed_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of one layer's feed-forward network for *batch*."""
        return self.shape.feed_cost(_groups(batch), self.share)

    def _with_copies(self, cost: Cost, batch: EngineBatch, layers: int) -> Cost:
        """Return *cost* plus the cost of copying the prefixes of *batch* in *layers* layers."""
        prefixes = sum(one.prefix for one in batch.opened)
        return cost + replace(self, layers=layers).copy_of(prefixes) if prefixes else cost

    def copy_of(self, tokens: int) -> Cost:
        """Return the cost of reading and writing the keys and values of *tokens*."""
        return Cost(0.0, 2 * self.share * self.shape.cache_bytes(self.layers, tokens))

    def head_of(self, batch: EngineBatch) -> Cost:
        """Return the cost of the logits of *batch*, or FREE if no piece samples."""
        rows = batch.rows
        return self.shape.head_cost(rows, self.share) if rows else FREE


def _groups(batch: EngineBatch) -> list[tuple[int, int, int]]:
    return [(1, piece.count, piece.start) for piece in batch.pieces]


class StageMemory:
    """The memory of a stage, or of one of *count* shards: weight bytes and peak cache bytes."""

    def __init__(self, costs: Costs, weight_bytes: float, count: int = 1) -> None:
        self.costs = costs
        self.weight_bytes = weight_bytes
        self.peak_cache_bytes = 0.0
        self._per_token = costs.shape.cache_bytes(costs.layers, 1) / count
        self._lengths: dict[int, int] = {}

    def _note(self, batch: EngineBatch) -> None:
        for slot in batch.closed:
            self._lengths.pop(slot, None)
        for piece in batch.pieces:
            self._lengths[piece.slot] = piece.start + piece.count
        self.peak_cache_bytes = max(self.peak_cache_bytes, self._per_token * sum(self._lengths.values()))


class StageModel(Protocol):
    """The layers [*first*, *last*) of a model, as an engine computes them; see `ModelShare`.

    Its caches have `length`, `capacity` and `copy`, and those of ModelShare all of `SequenceCache`.
    """

    first: int
    last: int
    nbytes: int

    def cache(self, capacity: int) -> Any: ...

    def forward(self, parts: Sequence[SequencePart], last: Sequence[int] | None = None) -> list[Tensor]: ...


class Sequences:
    """The sequences of a stage with real weights: their caches, and the sampling of their tokens.

    *make* returns a cache for a number of tokens. It is called once per sequence, for the most
    tokens that the sequence can have. Unused room takes no memory on a CPU, because the system only
    provides pages once they are written. *constrain* makes the constraints of grammars.
    """

    def __init__(self, make: Callable[[int], Any], sampled: Sampled, constrain: Constrain | None = None) -> None:
        self._make = make
        self._constrain = constrain
        self._sampled = sampled
        self._caches: dict[int, Any] = {}  # of the kind that the engine makes
        self._opened: dict[int, NewSequence] = {}
        self._histories: dict[int, TokenHistory] = {}  # of sequences with sampling rules

    def parts(self, batch: EngineBatch, inputs: Tensor) -> list[SequencePart]:
        """Open and close sequences for *batch*; return its pieces with their rows of *inputs*."""
        for one in batch.opened:
            cache = self._caches[one.slot] = self._make(one.capacity)
            self._opened[one.slot] = one
            if one.prefix:
                cache.copy(self._caches[one.source], one.prefix)
        for ruled in batch.ruled:
            self._histories[ruled.slot] = TokenHistory(self._opened[ruled.slot], ruled, self._constrain)
        for slot in batch.closed:  # unknown if the batch that opened it was lost with a node
            self._caches.pop(slot, None)
            self._opened.pop(slot, None)
            self._histories.pop(slot, None)
        for piece in batch.pieces:
            self._caches[piece.slot].length = piece.start
        rows = torch.split(inputs, [piece.count for piece in batch.pieces])
        return [SequencePart(self._caches[piece.slot], own) for piece, own in zip(batch.pieces, rows, strict=True)]

    def copy_out(self, slot: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Return copies of the keys and values of the first *tokens* of *slot*."""
        found: tuple[Tensor, Tensor] = self._caches[slot].content(tokens)
        return found

    def take_in(self, opened: NewSequence, keys: Tensor, values: Tensor) -> None:
        """Begin the sequence *opened* with *keys* and *values* from `copy_out`."""
        self._caches[opened.slot] = self._make(opened.capacity)
        self._opened[opened.slot] = opened
        self._caches[opened.slot].fill(keys, values)

    def choose(self, batch: EngineBatch, logits: Tensor) -> Chosen:
        """Return the next tokens of the sampling pieces of *batch*, from their rows of *logits*.

        Each right guess yields one more token. A wrong guess is replaced with the chosen token, and
        later guesses of its piece are dropped.
        """
        logits = to_host(logits)
        chosen = list[int]()
        counts = list[int]()
        row = 0
        # for each chosen token: its row in *logits*, and `Request.logprobs` of its request
        rows, asked = list[int](), list[int]()
        for piece in batch.pieces:
            if not piece.samples:
                continue
            opened, place = self._opened[piece.slot], piece.start + piece.count - len(piece.guesses)
            before = len(chosen)
            for offset in range(piece.rows):
                chosen.append(self._choose(opened, logits[row + offset], place + offset))
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

    def _choose(self, opened: NewSequence, logits: Tensor, place: int) -> int:
        history = self._histories.get(opened.slot)
        if history is None:
            return self._sampled(logits, opened.sampling, place)
        return history.choose(self._sampled, logits, place)


class RealStage(StageMemory):
    """A stage with real weights, the *share* of a model of *shape*, and a cache per sequence."""

    def __init__(
        self, share: StageModel, shape: ModelShape, sampled: Sampled, constrain: Constrain | None = None
    ) -> None:
        super().__init__(Costs(shape, share.last - share.first), share.nbytes)
        self._share = share
        self._sequences = Sequences(share.cache, sampled, constrain)
        self.choose = self._sequences.choose
        self.copy_out = self._sequences.copy_out
        self.take_in = self._sequences.take_in

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        self._note(batch)
        rows = [piece.rows for piece in batch.pieces]
        return torch.cat(self._share.forward(self._sequences.parts(batch, inputs), rows))


class TimedStage(StageMemory):
    """The layers [*first*, *last*) without weights: tensors have no values, tokens are UNKNOWN."""

    def __init__(self, shape: ModelShape, first: int, last: int) -> None:
        self._ends = last == shape.layers
        ends_bytes = shape.ends_bytes(first == 0, self._ends)
        super().__init__(Costs(shape, last - first), (last - first) * shape.layer_bytes + ends_bytes)

    def forward(self, batch: EngineBatch, inputs: Tensor) -> Tensor:
        self._note(batch)
        shape = self.costs.shape
        size = (batch.rows, shape.vocabulary) if self._ends else (len(inputs), shape.width)
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
