"""The time of a step of expert parallelism, with the set load on the experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import torch

from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout, ExpertPiece
from simcluster.algorithms.model_parallel.expert_load import counts_by, kept_of, shares_of
from simcluster.algorithms.model_parallel.flush_replay import StageHops, replay_flush
from simcluster.algorithms.model_parallel.pipeline_plan import ORDERS
from simcluster.algorithms.timed import cost_of
from simcluster.lm.training_plans.layout_clocks import LayoutClocks
from simcluster.lm.training_plans.rank_group import RankGroup
from simcluster.lm.training_plans.ring import NUMBER_BYTES
from simcluster.transport import Cost
from simcluster.workloads.layers import experts as layer
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.tensor_shard import ShardedLayer

COUNT_BYTES = 8
"""Size of what a rank tells all others of each expert: a count, and a sum of probabilities."""


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class ExpertTimes:
    """A replay of expert-parallel steps of *group*, a RankGroup. All its layers of experts are alike."""

    def __init__(self, group: RankGroup, settings: dict[str, Any]) -> None:
        self._replica, self._settings = group.replica, settings
        n = len(group.names)
        first = ExpertLayout(group.replica, 0, n, settings["layout"], settings["micro_batches"])
        self._layout, self._places = first, [first.at(rank) for rank in range(n)]
        self.clocks = LayoutClocks(group, first)
        self._hops = StageHops(group.topology, group.names)
        (self._layer, whole) = next(iter(first.wholes.items()))
        self._active, self._experts, self._width = whole.active, len(whole.experts), whole.router.in_features
        self._samples = [samples // first.micro_batches for samples in first.sizes]
        self._costs = [first.costs(group.batches(self._samples[place.number])) for place in self._places]
        # The bytes of the stream of tokens, as each layer gives it to the next.
        self._bytes = [cost.output_bytes for cost in group.replica.layer_costs(group.batches(self._samples[0]))]
        per_sample = self._bytes[self._layer] // NUMBER_BYTES // self._width // self._samples[0]
        shares = shares_of(settings["load"], self._experts, self._active)
        counts = counts_by(shares, [self._active * per_sample * samples for samples in self._samples])
        of_rank = [place.number for place in self._places]
        self._tokens = [per_sample * self._samples[number] for number in of_rank]
        self._counts = counts[of_rank]
        self._kept = kept_of(counts, settings["capacity_factor"], self._active)[of_rank]

    def step_s(self) -> float:
        """Return the time of a step in the steady state; leave its work and its bytes in `clocks`."""
        ends = [0.0]
        for _ in (1, 2):
            self.clocks.restart()
            self._flush()
            self._reduce()
            ends.append(max(self.clocks.now))
        return ends[2] - ends[1]

    def _flush(self) -> None:
        """Let micro-batches pass all stages, forward and back."""
        clocks, plan = self.clocks, self._layout.plan

        def run(stage: int, way: str, came: Mapping[int, float]) -> Mapping[int, float]:
            for rank, at_s in came.items():
                clocks.now[rank] = max(clocks.now[rank], at_s)
            self._pass(stage, forward=way == "forward")
            return {rank: clocks.now[rank] for rank in clocks.ranks(stage)}

        def size(stage: int) -> int:
            found: int = self._bytes[plan.bounds[stage][0] - 1]
            clocks.sent_bytes += found
            return found

        orders = [ORDERS["1f1b"](plan.p, stage, self._layout.micro_batches, 1) for stage in range(plan.p)]
        replay_flush(orders, 1, self._hops, clocks.ranks, run, size)

    def _pass(self, stage: int, *, forward: bool) -> None:
        place = self._places[self.clocks.ranks(stage)[0]]
        last = [(-1, ShardedLayer(place.last, None, None, None, residual=False))] if place.is_last else []
        for number, piece in [*place.pieces, *last] if forward else reversed([*place.pieces, *last]):
            if isinstance(piece, ExpertPiece):
                work = partial(self._forward if forward else self._backward, stage)
                self.clocks.again(stage, ("experts", forward), work)
            else:
                alike = tuple(of_rank[number] for of_rank in self._costs)
                work = partial(self._through, stage, number, piece, forward=forward)
                self.clocks.again(stage, (*map(id, alike), forward), work)

    def _through(self, stage: int, number: int, piece: ShardedLayer, *, forward: bool) -> None:
        """Pass a layer that tensor ranks share, or one that each rank computes alone."""

        def work(what: str) -> None:
            costs = [getattr(of_rank[number], what) for of_rank in self._costs]
            self.clocks.work(stage, lambda rank: [costs[rank].forward if forward else costs[rank].backward])

        if piece.whole is not None and forward:
            work("whole")
        if piece.shard is not None:
            work("shard")
            numbers = [of_rank[number].shard.output_bytes // NUMBER_BYTES for of_rank in self._costs]
            self.clocks.all_reduce(self.clocks.groups(stage, "tensor"), numbers.__getitem__)
        if piece.whole is not None and not forward:
            work("whole")
        if piece.shard is not None:
            work("join")

    def _forward(self, stage: int) -> None:
        self.clocks.work(stage, lambda rank: [self._rows("norm", rank).forward, self._rows("router", rank).forward,
                                        *self._own_costs[rank][:3]])  # fmt: skip
        replicas = self.clocks.groups(stage, "data", "expert")
        for _ in range(len(replicas[0]) - 1):
            self.clocks.shift(replicas, 1, lambda rank, to: COUNT_BYTES * self._experts)
        self._dispatch(stage)
        self.clocks.work(stage, lambda rank: [cost.forward for cost in self._of_experts(rank)])
        self._combine(stage)
        if self._layout.tensor > 1:
            self._sum_terms(stage, lambda rank: self._width * self._tokens[rank])
            self.clocks.work(stage, lambda rank: [self._own_costs[rank][9]])

    def _backward(self, stage: int) -> None:
        self._uncombine(stage)
        self.clocks.work(stage, lambda rank: [cost.backward for cost in self._of_experts(rank)])
        self._undispatch(stage)
        self._sum_terms(stage, lambda rank: (self._width + self._active) * self._tokens[rank])
        self.clocks.work(stage, lambda rank: [self._own_costs[rank][7], self._rows("router", rank).backward,
                                        self._own_costs[rank][8], self._rows("norm", rank).backward,
                                        self._own_costs[rank][9]])  # fmt: skip

    def _dispatch(self, stage: int) -> None:
        self.clocks.work(stage, lambda rank: [self._own_costs[rank][3]])
        self._exchange(stage, self._copies_bytes)

    def _combine(self, stage: int) -> None:
        self._exchange(stage, self._copies_bytes, back=True)
        self.clocks.work(stage, lambda rank: [self._own_costs[rank][4]])

    def _uncombine(self, stage: int) -> None:
        self.clocks.work(stage, lambda rank: [self._own_costs[rank][5]])
        self._exchange(stage, self._copies_bytes)

    def _undispatch(self, stage: int) -> None:
        self._exchange(stage, self._copies_bytes, back=True)
        self.clocks.work(stage, lambda rank: [self._own_costs[rank][6]])

    def _reduce(self) -> None:
        """Sum the gradients over the ranks that hold them, then step."""
        layout = self._layout
        for stage in range(layout.plan.p):
            for which, *directions in (("shared", "data", "expert"), ("own", "data")):
                self.clocks.all_reduce(self.clocks.groups(stage, *directions), self._held[which].__getitem__)
        for at, stages in layout.tied.items():
            lines = [[self.clocks.ranks(stage)[i] for stage in stages] for i in range(len(self.clocks.ranks(0)))]
            for k in range(1, len(stages)):
                self.clocks.shift(lines, k, lambda rank, to, at=at: layout.shape(at).nbytes)  # type: ignore[misc]
        for stage in range(layout.plan.p):
            self.clocks.work(stage, lambda rank: [self._applies[rank]])

    @cached_property
    def _held(self) -> dict[str, list[int]]:
        """The numbers of each rank's gradients: *shared* by all replicas, and of its *own* experts."""
        found: dict[str, list[int]] = {"shared": [], "own": []}
        for place in self._places:
            sizes = {at: place.shape(at).numel() for at in place.places}
            own = sum(size for at, size in sizes.items() if at in place.owners)
            found["own"].append(own)
            found["shared"].append(sum(sizes.values()) - own)
        return found

    @cached_property
    def _applies(self) -> list[Cost]:
        """The cost of each rank's optimizer step."""
        return [place.part().apply_cost() for place in self._places]

    def _exchange(self, stage: int, bytes_of: Callable[[int, int], int], *, back: bool = False) -> None:
        """Send *bytes_of* (rank, place of the experts) to their ranks, or *back*, in pairwise rounds."""

        def size(rank: int, to: int) -> int:
            source, at = (to, rank) if back else (rank, to)
            return bytes_of(source, self._places[at].at_experts)

        for k in range(1, self._layout.expert):
            self.clocks.shift(self.clocks.groups(stage, "expert"), k, size)

    def _copies(self, rank: int, place: int) -> int:
        own = self._layout.own(self._layout.wholes[self._layer], place)
        return int(self._kept[rank, own].sum())

    def _copies_bytes(self, rank: int, place: int) -> int:
        return NUMBER_BYTES * self._width * self._copies(rank, place)

    def _rows(self, name: str, rank: int) -> LayerCost:
        return self._replica.rows_cost(self._layer, name, self._tokens[rank], self._width)

    def _of_experts(self, rank: int) -> list[LayerCost]:
        place = self._places[rank]
        own = place.own(place.wholes[self._layer])
        numbers = self._kept[place.place.along("expert")][:, own].sum(axis=0).tolist()
        how = self._width, self._layout.tensor
        return [self._replica.rows_cost(self._layer, "experts.0", rows, *how) for rows in numbers if rows]

    def _sum_terms(self, stage: int, numbers: Callable[[int], int]) -> None:
        self.clocks.all_reduce(self.clocks.groups(stage, "tensor"), numbers)

    @cached_property
    def _own_costs(self) -> list[list[Cost]]:
        """The costs of the algorithm's own arithmetic on each rank, in the order of a step."""
        return [self._arithmetic(n, int(kept.sum())) for n, kept in zip(self._tokens, self._kept, strict=True)]

    def _arithmetic(self, tokens: int, copies: int) -> list[Cost]:
        scores, weights = numbers(tokens, self._experts), numbers(tokens, self._active)
        chosen, index = numbers(tokens, self._active, dtype=torch.int64), numbers(copies, dtype=torch.int64)
        rows, stream = numbers(copies, self._width), numbers(tokens, self._width)
        shares = numbers(self._experts)
        terms = self._settings["balance_loss"], self._settings["z_loss"]
        return [
            cost_of(layer.choose, scores, shares, self._active),
            cost_of(layer.weigh, scores, chosen),
            cost_of(layer.tally, scores, chosen),
            cost_of(layer.copied_rows, stream, index, self._active),
            cost_of(layer.combine, stream, rows, index, weights),
            cost_of(layer.uncombine, stream, rows, index, weights),
            cost_of(layer.summed_copies, rows, index, weights),
            cost_of(layer.router_gradient, scores, chosen, weights, shares, *map(float, terms)),
            cost_of(torch.add, stream, stream),
            cost_of(torch.add, stream, stream),
        ]
