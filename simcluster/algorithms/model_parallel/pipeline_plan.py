"""The plan of a pipeline: each rank's stages, their layers, and the parameters that several ranks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simcluster.errors import Problem, UsageError
from simcluster.workloads import Batch, Replica
from simcluster.workloads.layers.layer_costs import LayerCost
from simcluster.workloads.layers.layers import Layer, Layers
from simcluster.workloads.layers.stages import cut_into_stages
from simcluster.workloads.streams import micro_batches as cut

Numbers = Sequence[float] | str | None


@dataclass(frozen=True)
class Plan:
    """Stage s is chunk s // p of rank s % p; it has layers bounds[s][0] to bounds[s][1] - 1."""

    p: int
    chunks: int
    bounds: list[tuple[int, int]]
    layers: Layers
    costs: list[LayerCost]

    @property
    def last(self) -> int:
        """The stage with the loss."""
        return len(self.bounds) - 1

    def stage(self, s: int) -> tuple[Layer, LayerCost]:
        """Return the layers of stage *s* as one, and their cost for a micro-batch."""
        first, end = self.bounds[s]
        costs = self.costs[first:end]
        forward = sum((cost.forward for cost in costs[1:]), costs[0].forward)
        backward = sum((cost.backward for cost in costs[1:]), costs[0].backward)
        return self.layers.merged(first, end), LayerCost(forward, backward, costs[-1].output_bytes)

    def places(self, rank: int) -> list[int]:
        """Return the places in `Replica.parameters` of the parameters that *rank* holds."""
        return sorted({place for place, ranks in self.holders().items() if rank in ranks})

    def holders(self) -> dict[int, list[int]]:
        """Return place -> the ranks that hold its parameter, ascending: one, unless several layers share it."""
        found: dict[int, set[int]] = {}
        for s, (first, end) in enumerate(self.bounds):
            for layer in self.layers[first:end]:
                for place in layer.parameters:
                    found.setdefault(place, set()).add(s % self.p)
        return {place: sorted(ranks) for place, ranks in sorted(found.items())}

    def tied(self, rank: int) -> dict[int, list[int]]:
        """Return place -> holders of the parameters that *rank* shares with others."""
        return {place: ranks for place, ranks in self.holders().items() if len(ranks) > 1 and rank in ranks}

    def counted(self, rank: int) -> list[int]:
        """Return the places of *rank*'s parameters, without those shared with a lower rank."""
        return [place for place, ranks in self.holders().items() if ranks[0] == rank]


def plan_of(
    replica: Replica,
    p: int,
    micro_batches: int,
    schedule: str,
    chunks: int | None,
    cuts: Sequence[int] | None,
    flops_per_s: Numbers,
    bandwidth_Bps: Numbers,
) -> Plan:
    """Return the plan, which every rank derives on its own. Raise UsageError with everything wrong in the settings."""
    problems = []
    size = p * replica.batch_size
    if size % micro_batches:
        expected = f"a divisor of {size}, the batch of all ranks ({p} of {replica.batch_size} each)"
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
    if problems:
        raise UsageError(problems)
    v = (chunks or 2) if schedule == "interleaved" else 1
    speeds, rates = (list(numbers) * v if isinstance(numbers, Sequence) else None for numbers in given.values())
    costs = replica.layer_costs(_first_micro_batch(replica, micro_batches))
    bounds = cut_into_stages(costs, p * v, cuts, speeds, rates)  # type: ignore[arg-type]
    return Plan(p, v, bounds, replica.layers(), costs)


def _first_micro_batch(replica: Replica, count: int) -> Batch:
    return cut(next(replica.joined_batches()), count)[0]
