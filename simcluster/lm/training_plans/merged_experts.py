"""The time of a step of expert parallelism whose all-to-alls merge the copies of a token on a rank."""

from __future__ import annotations

from collections.abc import Callable

import torch

from simcluster.algorithms.model_parallel.merged_exchange import WAY_BYTES, merged_tokens
from simcluster.algorithms.timed import cost_of
from simcluster.lm.training_plans.experts import ExpertTimes, numbers
from simcluster.lm.training_plans.ring import NUMBER_BYTES
from simcluster.transport import Cost
from simcluster.workloads.layers import experts as layer


class MergedTimes(ExpertTimes):
    """A replay like that of `ExpertTimes`, with the exchanges of `MergedExchange`."""

    def _dispatch(self, stage: int) -> None:
        self._exchange(stage, lambda rank, place: WAY_BYTES * self._copies(rank, place))
        self._send_rows(stage)
        self._of_sources(stage, lambda tokens, copies: cost_of(
            layer.copied_rows, numbers(tokens, self._width), numbers(copies, dtype=torch.int64), 1
        ))  # fmt: skip

    def _combine(self, stage: int) -> None:
        self._of_sources(stage, lambda tokens, copies: cost_of(
            layer.weighted_copies, numbers(copies, self._width), numbers(copies, dtype=torch.int64), numbers(copies),
            numbers(tokens, self._active),
        ))  # fmt: skip
        self._exchange(stage, self._rows_bytes, back=True)
        self.clocks.work(stage, lambda rank: [cost_of(
            layer.added_copies, numbers(self._tokens[rank], self._width), *self._sums(rank)
        )])  # fmt: skip

    def _uncombine(self, stage: int) -> None:
        self._send_rows(stage)
        self._of_sources(stage, lambda tokens, copies: cost_of(
            layer.unweighted_copies, numbers(tokens, self._width), numbers(copies, self._width),
            numbers(copies, dtype=torch.int64), numbers(copies),
        ))  # fmt: skip

    def _undispatch(self, stage: int) -> None:
        self._of_sources(stage, lambda tokens, copies: cost_of(
            layer.summed_copies, numbers(copies, self._width), numbers(copies, dtype=torch.int64),
            numbers(tokens, self._active),
        ))  # fmt: skip
        self._exchange(stage, self._rows_bytes, back=True)
        self._exchange(stage, lambda rank, place: NUMBER_BYTES * self._copies(rank, place), back=True)
        self.clocks.work(stage, lambda rank: [cost_of(layer.summed_copies, *self._sums(rank))])

    def _send_rows(self, stage: int) -> None:
        self.clocks.work(stage, lambda rank: [cost_of(
            layer.copied_rows, numbers(self._tokens[rank], self._width), self._sums(rank)[1], self._layout.expert
        )])  # fmt: skip
        self._exchange(stage, self._rows_bytes)

    def _distinct(self, rank: int, place: int) -> int:
        own = self._layout.own(self._layout.wholes[self._layer], place)
        kept = self._copies(rank, place) / max(1, int(self._counts[rank, own].sum()))
        return merged_tokens(self._tokens[rank], self._experts, self._active, self._layout.expert, kept)

    def _rows_bytes(self, rank: int, place: int) -> int:
        return NUMBER_BYTES * self._width * self._distinct(rank, place)

    def _sums(self, rank: int) -> tuple[torch.Tensor, ...]:
        """Return (the rows, their places, the table) of the sums that come back to *rank*."""
        ranks = self._layout.expert
        number = sum(self._distinct(rank, place) for place in range(ranks))
        places = numbers(number, dtype=torch.int64)
        return numbers(number, self._width), places, numbers(self._tokens[rank], ranks)

    def _of_sources(self, stage: int, cost: Callable[[int, int], Cost]) -> None:
        """Work by *cost* (tokens, copies) for what came from each rank of the group."""
        self.clocks.work(stage, lambda rank: [
            cost(self._distinct(source, place.at_experts), self._copies(source, place.at_experts))
            for place in [self._places[rank]] for source in place.place.along("expert")
        ])  # fmt: skip
