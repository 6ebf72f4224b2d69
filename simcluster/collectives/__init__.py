"""Collective operations, built only from send and recv.

Each schedule is a plain `async def`; related schedules share a file.

docs/collectives.md says what each schedule costs and when it is the fastest.
"""

from simcluster.collectives.exchange import exchange
from simcluster.collectives.flat import flatten, unflatten
from simcluster.collectives.operations import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
    share_statistics,
)
from simcluster.collectives.schedules import SCHEDULES, AllReduceSchedule, ScheduleOf
from simcluster.collectives.subgroup import subgroup
from simcluster.collectives.with_statistics import AllReduce

naive_all_reduce: AllReduce = SCHEDULES["all_reduce"]["naive"]
ring_all_reduce: AllReduce = SCHEDULES["all_reduce"]["ring"]

__all__ = [
    "SCHEDULES",
    "AllReduceSchedule",
    "ScheduleOf",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "exchange",
    "flatten",
    "gather",
    "naive_all_reduce",
    "reduce",
    "reduce_scatter",
    "ring_all_reduce",
    "scatter",
    "share_statistics",
    "subgroup",
    "unflatten",
]
