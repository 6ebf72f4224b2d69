"""How much of a partitioned model each rank holds, and whether a model can be partitioned so. See `Facts`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, Shares
from simcluster.algorithms.model_parallel.order import ranks_of, stages_of, takes_no_part
from simcluster.algorithms.model_parallel.pipeline_plan import plan_of
from simcluster.workloads import Replica


def parted_copies(rank: int, size: int, settings: Settings) -> float:
    # While weights are gathered, rank 0 holds those of every rank, any other a frozen copy of its part.
    if rank == 0:
        return 1.0 if size > 1 else 0.0
    return 0.0 if takes_no_part(rank, size, settings) else 1.0 / stages_of(size, settings)


def parted_shares(size: int, settings: Settings) -> Shares:
    # Stages are balanced by work, and every rank holds what is not split.
    return Shares(*[1.0 / stages_of(size, settings)] * 3)


def pipeline_cut(replica: Replica, size: int, settings: Settings) -> None:
    names = ("schedule", "chunks", "cuts", "flops_per_s", "bandwidth_Bps")
    p = len(ranks_of(settings["order"], size))
    plan_of(replica, size, p, settings["micro_batches"] or size, *(settings[name] for name in names))
