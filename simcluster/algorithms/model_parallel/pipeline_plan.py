"""The plan of a pipeline: each rank's stages, their layers, and the parameters that several ranks
share.

This file also has the three orders of a rank's work on its micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from simcluster.errors import Problem, raise_all
from simcluster.workloads import Replica
from simcluster.workloads.data.streams import micro_batches as cut
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer, Layers
from simcluster.workloads.layers.stages import cut_into_stages

Numbers = Sequence[float] | str | None


@dataclass(frozen=True)
class PipelinePlan:
    """The stages of a pipeline.

    Stage s is chunk s // p of rank s % p, where ranks are counted in the pipeline's order.

    Stage s has layers bounds[s][0] to bounds[s][1] - 1.
    """

    p: int
    chunks: int
    bounds: list[tuple[int, int]]
    layers: Layers
    costs: list[LayerCost]

    @property
    def last(self) -> int:
        """The number of the last stage, which computes the loss."""
        return len(self.bounds) - 1

    def stage(self, s: int) -> tuple[Layer, LayerCost]:
        """Return the layers of stage *s* merged into one layer, and its cost for a micro-batch."""
        return self.layers.merged(*self.bounds[s]), self.cost(s)

    def cost(self, s: int) -> LayerCost:
        """Return the cost of stage *s* for a micro-batch."""
        first, end = self.bounds[s]
        costs = self.costs[first:end]
        forward = sum((cost.forward for cost in costs[1:]), costs[0].forward)
        backward = sum((cost.backward for cost in costs[1:]), costs[0].backward)
        return LayerCost(forward, backward, costs[-1].output_bytes)

    def places(self, rank: int) -> list[int]:
        """Return the indices in `Replica.parameters` of the parameters that *rank* holds."""
        return sorted({place for place, ranks in self.holders().items() if rank in ranks})

    def holders(self) -> dict[int, list[int]]:
        """Return index in `Replica.parameters` -> the ranks that hold that parameter, ascending.

        There is one such rank unless layers of several ranks share the parameter.
        """
        found: dict[int, list[int]] = {}
        for s, (first, end) in enumerate(self.bounds):
            for layer in self.layers[first:end]:
                for place in layer.parameters:
                    ranks = found.setdefault(place, [])
                    if s % self.p not in ranks:
                        ranks.append(s % self.p)
        return {place: ranks if len(ranks) == 1 else sorted(ranks) for place, ranks in sorted(found.items())}

    def tied(self, rank: int) -> dict[int, list[int]]:
        """Return index in `Replica.parameters` -> the ranks that hold that parameter, for the
        parameters that *rank* shares with other ranks.
        """
        return {place: ranks for place, ranks in self.holders().items() if len(ranks) > 1 and rank in ranks}

    def counted(self, rank: int) -> list[int]:
        """Return the indices of *rank*'s parameters, except those shared with a lower rank."""
        return [place for place, ranks in self.holders().items() if ranks[0] == rank]


def plan_of(
    replica: Replica, size: int, p: int, micro_batches: int, schedule: str, chunks: int | None,
    cuts: Sequence[int] | None, flops_per_s: Numbers, bandwidth_Bps: Numbers,
) -> PipelinePlan:  # fmt: skip
    """Return the plan for the *p* of *size* ranks that hold stages.

    Every rank derives the same plan.

    Raise UsageError with all problems of the settings.
    """
    problems = []
    whole = sum(replica.batch_sizes)
    if whole % micro_batches:
        each = f"{size} of {replica.batch_size} each" if len(set(replica.batch_sizes)) == 1 else f"of {size} ranks"
        expected = f"a divisor of {whole}, the batch of all ranks ({each})"
        problems.append(Problem("micro_batches", str(micro_batches), expected))
    if schedule == "interleaved" and micro_batches % p:
        expected = f"a multiple of the {p} ranks, which interleaved stages take in turns"
        problems.append(Problem("micro_batches", str(micro_batches), expected))
    if schedule != "interleaved" and chunks not in (None, 1):
        problems.append(Problem("chunks", str(chunks), f"1 with {schedule}; schedule: interleaved has several"))
    given = {"flops_per_s": flops_per_s, "bandwidth_Bps": bandwidth_Bps}
    for name, numbers in given.items():
        if isinstance(numbers, str):
            problems.append(Problem(name, numbers, "numbers, one per rank: only an experiment knows its topology"))
        elif numbers is not None and len(numbers) != p:
            problems.append(Problem(name, f"{len(numbers)} numbers", f"{p}, one per rank"))
    if bandwidth_Bps is not None and flops_per_s is None:
        problems.append(Problem("bandwidth_Bps", "no flops_per_s", "both: FLOPs and bytes are balanced as seconds"))
    raise_all(problems)
    v = (chunks or 2) if schedule == "interleaved" else 1
    speeds, rates = (list(numbers) * v if isinstance(numbers, Sequence) else None for numbers in given.values())
    costs = replica.layer_costs(cut(next(replica.joined_batches()), micro_batches)[0])
    bounds = cut_into_stages(costs, p * v, cuts, speeds, rates)  # type: ignore[arg-type]
    return PipelinePlan(p, v, bounds, replica.layers(), costs)


def plan_by(settings: Mapping[str, Any], replica: Replica, size: int, p: int) -> PipelinePlan:
    """Return the plan for *replica* under the algorithm's *settings*. See `plan_of`."""
    names = ("schedule", "chunks", "cuts", "flops_per_s", "bandwidth_Bps")
    return plan_of(replica, size, p, settings["micro_batches"] or size, *(settings[name] for name in names))


class Task(NamedTuple):
    """The forward or backward pass of one micro-batch through one of the rank's chunks."""

    way: Literal["forward", "backward"]
    chunk: int
    micro: int


def gpipe(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return all m forward tasks, then all backward tasks in reverse order. m micro-batches are
    stashed (Huang et al. 2019, figure 2c).
    """
    forward = [Task("forward", 0, k) for k in range(m)]
    return forward + [Task("backward", 0, k) for k in reversed(range(m))]


def one_forward_one_backward(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return p - 1 - i forward tasks to warm up, then forward and backward tasks in turn. At most p
    - i micro-batches are stashed.

    Narayanan et al. 2021, section 2.2.1.
    """
    forward = [Task("forward", 0, k) for k in range(m)]
    backward = [Task("backward", 0, k) for k in range(m)]
    return _alternating(forward, backward, p - 1 - i)


def interleaved(p: int, i: int, m: int, v: int) -> list[Task]:
    """Return rank i's tasks for its v stages i, p + i, ..., each of which takes p micro-batches at
    a time.

    This divides the bubble by v (section 2.2.2). p must divide m.
    """
    if v == 1:
        return one_forward_one_backward(p, i, m, v)
    turns = [(k // (p * v) * p + k % p, k % (p * v) // p) for k in range(m * v)]
    forward = [Task("forward", chunk, micro) for micro, chunk in turns]
    backward = [Task("backward", v - 1 - chunk, micro) for micro, chunk in turns]
    return _alternating(forward, backward, 2 * (p - 1 - i) + (v - 1) * p)


def _alternating(forward: list[Task], backward: list[Task], warm_up: int) -> list[Task]:
    warm_up = min(warm_up, len(forward))
    steady = [task for pair in zip(forward[warm_up:], backward, strict=False) for task in pair]
    return forward[:warm_up] + steady + backward[len(forward) - warm_up :]


ORDERS: Mapping[str, Callable[[int, int, int, int], list[Task]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
}
"""Name of a schedule -> a function that takes p, the number of ranks; i, this rank; m, the number
of micro-batches; and v, the number of chunks per rank. It returns the rank's tasks in a step.
"""
