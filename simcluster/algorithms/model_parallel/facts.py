"""How much of a partitioned model each rank holds, and whether a model can be partitioned so. See `Facts`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, Shares
from simcluster.algorithms.model_parallel.pipeline_plan import plan_of
from simcluster.workloads import Replica


def parted_copies(rank: int, size: int, settings: Settings) -> float:
    # While weights are gathered, rank 0 holds those of every rank, any other a frozen copy of its part.
    return (1.0 if rank == 0 else 1.0 / size) if size > 1 else 0.0


def parted_shares(size: int, settings: Settings) -> Shares:
    # Stages are balanced by work, and every rank holds what is not split.
    return Shares(1.0 / size, 1.0 / size, 1.0 / size)


def pipeline_cut(replica: Replica, size: int, settings: Settings) -> None:
    names = ("schedule", "chunks", "cuts", "flops_per_s", "bandwidth_Bps")
    plan_of(replica, size, settings["micro_batches"] or size, *(settings[name] for name in names))
