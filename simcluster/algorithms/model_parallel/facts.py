"""How much of a partitioned model each rank holds, and whether a model can be partitioned so. See `Facts`."""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, StateShares
from simcluster.algorithms.model_parallel.order import ranks_of, stages_of
from simcluster.algorithms.model_parallel.pipeline_plan import plan_of
from simcluster.workloads import Replica


def parted_shares(size: int, settings: Settings) -> StateShares:
    # Stages are balanced by work, and every rank holds what is not split.
    return StateShares(*[1.0 / stages_of(size, settings)] * 3)


def pipeline_cut(replica: Replica, size: int, settings: Settings) -> None:
    names = ("schedule", "chunks", "cuts", "flops_per_s", "bandwidth_Bps")
    p = len(ranks_of(settings["order"], size))
    plan_of(replica, size, p, settings["micro_batches"] or size, *(settings[name] for name in names))
