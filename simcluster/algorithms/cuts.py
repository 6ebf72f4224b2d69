"""Which algorithms cut a model up between ranks, so that it can be found out before a run whether they can.

The algorithms raise the same when they are called all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcluster.algorithms.model_parallel.pipeline_plan import plan_of
from simcluster.workloads import Replica

Settings = Mapping[str, Any]
Cut = Callable[[Replica, int, Settings], object]
"""(a replica, world size, the algorithm's settings): raises UsageError with what is wrong."""


def _pipeline(replica: Replica, size: int, settings: Settings) -> None:
    plan_of(
        replica,
        size,
        settings["micro_batches"] or size,
        settings["schedule"],
        settings["chunks"],
        settings["cuts"],
        settings["flops_per_s"],
        settings["bandwidth_Bps"],
    )


def _tensor_parallel(replica: Replica, size: int, settings: Settings) -> None:
    replica.tensor_shard()


CUTS: Mapping[str, Cut] = {"pipeline": _pipeline, "tensor_parallel": _tensor_parallel}
"""By the algorithm's name."""
