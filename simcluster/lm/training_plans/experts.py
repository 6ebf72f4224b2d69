"""The time of a step of expert parallelism, with the set load on the experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import torch

from simcluster.algorithms.model_parallel.expert_layout import ExpertLayout
from simcluster.algorithms.model_parallel.expert_load import counts_by, kept_of, shares_of
from simcluster.algorithms.timed import cost_of
from simcluster.lm.plan.times import bytes_s
from simcluster.lm.training_plans.ring import NUMBER_BYTES, all_reduced_s, ring
from simcluster.topology.model.duration import expected_s
from simcluster.transport import Cost
from simcluster.workloads.layers import experts as layer

COUNT_BYTES = 8
"""Size of what a rank tells all others of each expert: a count, and a sum of probabilities."""


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


class ExpertTimes:
    """A replay of expert-parallel steps of *group*, a RankGroup. All its layers of experts are alike."""

    def __init__(self, group: Any, settings: dict[str, Any]) -> None:
        self._group, self._settings = group, settings
        self._n = len(group.names)
        self._layout = ExpertLayout(group.replica, 0, self._n, settings["layout"])
        (number, whole) = next(iter(self._layout.wholes.items()))
        self._number, self._active, self._experts = number, whole.active, len(whole.experts)
        self._width = whole.router.in_features
        output_bytes = group.replica.layer_costs(group.batches(group.sizes[0]))[number].output_bytes
        self._tokens = [output_bytes // NUMBER_BYTES // self._width * n // group.sizes[0] for n in group.sizes]
        shares = shares_of(settings["load"], self._experts, self._active)
        counts = counts_by(shares, [self._active * tokens for tokens in self._tokens])
        self._counts = counts
        self._kept = kept_of(counts, settings["capacity_factor"], self._active)
        self.compute_s = [0.0] * self._n
        self.sent_bytes = 0
        self._now = [0.0] * self._n
        self._on = cache(lambda cost, rank: expected_s(group.devices[rank], cost))

    def step_s(self) -> float:
        """Return the time of a step in the steady state; leave its work and its bytes."""
        ends = [0.0]
        for _ in (1, 2):
            self.compute_s, self.sent_bytes = [0.0] * self._n, 0
            self._pass(forward=True)
            self._pass(forward=False)
            self._reduce()
            ends.append(max(self._now))
        return ends[2] - ends[1]

    def _pass(self, *, forward: bool) -> None:
        pieces = range(len(self._layout.layers))
        for number in pieces if forward else reversed(pieces):
            if number in self._layout.wholes:
                (self._forward if forward else self._backward)()
            else:
                costs = [self._dense(rank)[number] for rank in range(self._n)]
                self._work([[cost.forward if forward else cost.backward] for cost in costs].__getitem__)

    def _forward(self) -> None:
        self._work(lambda rank: [self._rows("norm", rank).forward, self._rows("router", rank).forward,
                                 *self._own_costs[rank][:3]])  # fmt: skip
        for _ in range(self._n - 1):
            self._round(range(self._n), 1, lambda rank, to: COUNT_BYTES * self._experts)
        self._dispatch()
        self._work(lambda rank: [cost.forward for cost in self._of_experts(rank)])
        self._combine()

    def _backward(self) -> None:
        self._uncombine()
        self._work(lambda rank: [cost.backward for cost in self._of_experts(rank)])
        self._undispatch()
        self._work(lambda rank: [self._own_costs[rank][7], self._rows("router", rank).backward,
                                 self._own_costs[rank][8], self._rows("norm", rank).backward,
                                 self._own_costs[rank][9]])  # fmt: skip

    def _dispatch(self) -> None:
        self._work(lambda rank: [self._own_costs[rank][3]])
        self._exchange(self._copies_bytes)

    def _combine(self) -> None:
        self._exchange(self._copies_bytes, back=True)
        self._work(lambda rank: [self._own_costs[rank][4]])

    def _uncombine(self) -> None:
        self._work(lambda rank: [self._own_costs[rank][5]])
        self._exchange(self._copies_bytes)

    def _undispatch(self) -> None:
        self._exchange(self._copies_bytes, back=True)
        self._work(lambda rank: [self._own_costs[rank][6]])

    def _reduce(self) -> None:
        """Sum the gradients over the ranks that hold them, then step."""
        layout, replica = self._layout, self._group.replica
        every = {at for one in layout.layers for at in one.parameters}
        shared = sum(replica.shapes[at].numel() for at in every if at not in layout.owners)
        self._sum(range(self._n), shared)
        for place in range(layout.expert):
            own = sum(replica.shapes[at].numel() for at, owner in layout.owners.items() if owner == place)
            self._sum(range(place, self._n, layout.expert), own)
        self._work(lambda rank: [self._parts[rank % layout.expert]])

    @cached_property
    def _parts(self) -> list[Cost]:
        """The cost of the optimizer step at each place of a group."""
        one = self._layout
        places = [one.at(rank).places for rank in range(one.expert)]
        return [self._group.replica.part(found).apply_cost() for found in places]

    def _sum(self, ranks: Sequence[int], numbers: int) -> None:
        n = len(ranks)
        if n > 1:
            names = [self._group.names[rank] for rank in ranks]
            hops = ring(self._group.topology, names, NUMBER_BYTES * -(-numbers // n))
            found = all_reduced_s(hops, numbers, [self._now[rank] for rank in ranks])
            for rank, end in zip(ranks, found, strict=True):
                self._now[rank] = end
            self.sent_bytes += 2 * (n - 1) * NUMBER_BYTES * numbers

    def _exchange(self, bytes_of: Callable[[int, int], int], *, back: bool = False) -> None:
        """Send *bytes_of* (rank, place of the experts) to their ranks, or *back*, in pairwise rounds."""
        expert = self._layout.expert

        def size(rank: int, to: int) -> int:
            source, at = (to, rank) if back else (rank, to)
            return bytes_of(source, at % expert)

        for k in range(1, expert):
            self._round(range(expert), k, size)

    def _copies(self, rank: int, place: int) -> int:
        own = self._layout.own(self._layout.wholes[self._number], place)
        return int(self._kept[rank, own].sum())

    def _copies_bytes(self, rank: int, place: int) -> int:
        return NUMBER_BYTES * self._width * self._copies(rank, place)

    def _round(self, group: range, k: int, size: Callable[[int, int], int]) -> None:
        """Send from each rank to the *k*-th one after it in its group, and wait for what comes."""
        m, names, topology = len(group), self._group.names, self._group.topology
        pairs = [(rank, rank // m * m + (rank + k) % m) for rank in range(self._n)]
        sizes = [size(rank, to) for rank, to in pairs]
        named = [(names[a], names[b]) for a, b in pairs]
        sent, arrived = list(self._now), list(self._now)
        for (rank, to), of, byte_s in zip(pairs, sizes, bytes_s(topology, named, max(sizes)), strict=True):
            a, b = names[rank], names[to]
            sent[rank] = self._now[rank] + topology.nodes[a].send_overhead_s + of * byte_s
            arrived[to] = sent[rank] + topology.route_latency_s(a, b, of) + topology.nodes[b].recv_overhead_s
        self._now = list(map(max, sent, arrived))
        self.sent_bytes += sum(sizes)

    def _work(self, costs: Callable[[int], Sequence[Cost]]) -> None:
        for rank in range(self._n):
            seconds = sum(self._on(cost, rank) for cost in costs(rank))
            self._now[rank] += seconds
            self.compute_s[rank] += seconds

    @cached_property
    def _dense(self) -> Callable[[int], Any]:
        of_size = {size: self._group.replica.layer_costs(self._group.batches(size)) for size in {*self._group.sizes}}
        return lambda rank: of_size[self._group.sizes[rank]]

    def _rows(self, name: str, rank: int) -> Any:
        return self._group.replica.rows_cost(self._number, name, self._tokens[rank], self._width)

    def _of_experts(self, rank: int) -> list[Any]:
        ranks = self._layout.at(rank).group
        own = self._layout.at(rank).own(self._layout.wholes[self._number])
        numbers = self._kept[ranks][:, own].sum(axis=0).tolist()
        return [self._group.replica.rows_cost(self._number, "experts.0", rows, self._width) for rows in numbers if rows]

    @cached_property
    def _own_costs(self) -> list[list[Cost]]:
        """The costs of the algorithm's own arithmetic on each rank, in the order of a step."""
        return [
            self._arithmetic(tokens, int(kept.sum())) for tokens, kept in zip(self._tokens, self._kept, strict=True)
        ]

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
