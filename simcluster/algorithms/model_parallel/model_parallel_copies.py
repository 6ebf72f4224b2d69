"""The share of a partitioned model that each rank holds, and a check that the model can be split.

See `Facts`.
"""

from __future__ import annotations

from simcluster.algorithms.facts import Settings, StateShares
from simcluster.algorithms.model_parallel.order import ranks_of, stages_of
from simcluster.algorithms.model_parallel.pipeline_plan import plan_by
from simcluster.workloads import Replica


def parted_shares(size: int, settings: Settings) -> StateShares:
    # This is an estimate: stages are balanced by work, not by bytes, and with tensor parallelism
    # every rank holds the layers that are not split.
    return StateShares(*[1.0 / stages_of(size, settings)] * 3)


def pipeline_cut(replica: Replica, size: int, settings: Settings) -> None:
    plan_by(settings, replica, size, len(ranks_of(settings["order"], size)))
