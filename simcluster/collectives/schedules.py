"""The schedules of each collective operation, by name. Operations, settings, the command line and
tests use these names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic_core import CoreSchema, core_schema

from simcluster.collectives import binomial, bruck, chain, hierarchical, naive, pairwise, ring
from simcluster.collectives.bandwidth_aware import bandwidth_aware_all_reduce
from simcluster.collectives.halving_doubling import halving_all_reduce, halving_reduce_scatter
from simcluster.collectives.on_host import on_host
from simcluster.collectives.recursive_doubling import doubling_all_gather, doubling_all_reduce, doubling_barrier
from simcluster.collectives.with_statistics import with_statistics
from simcluster.errors import UsageError
from simcluster.spelling import nearest

Schedule = Callable[..., Any]

_ON_HOST: Mapping[str, Mapping[str, Schedule]] = {
    "all_gather": {
        "naive": naive.naive_all_gather,
        "ring": ring.ring_all_gather,
        "recursive_doubling": doubling_all_gather,
        "bruck": bruck.bruck_all_gather,
    },
    "all_reduce": {
        "ring": ring.ring_all_reduce,
        "naive": naive.naive_all_reduce,
        "direct": naive.direct_all_reduce,
        "binomial": binomial.binomial_all_reduce,
        "recursive_doubling": doubling_all_reduce,
        "halving_doubling": halving_all_reduce,
        "hierarchical": hierarchical.hierarchical_all_reduce,
        "bandwidth_aware": bandwidth_aware_all_reduce,
    },
    "all_to_all": {
        "naive": naive.naive_all_to_all,
        "pairwise": pairwise.pairwise_all_to_all,
        "bruck": bruck.bruck_all_to_all,
    },
    "barrier": {
        "naive": naive.naive_barrier,
        "ring": ring.ring_barrier,
        "binomial": binomial.binomial_barrier,
        "recursive_doubling": doubling_barrier,
        "bruck": bruck.bruck_barrier,
    },
    "broadcast": {
        "naive": naive.naive_broadcast,
        "ring": ring.ring_broadcast,
        "chain": chain.chain_broadcast,
        "binomial": binomial.binomial_broadcast,
        "hierarchical": hierarchical.hierarchical_broadcast,
    },
    "gather": {"naive": naive.naive_gather, "binomial": binomial.binomial_gather},
    "reduce": {
        "naive": naive.naive_reduce,
        "binomial": binomial.binomial_reduce,
        "hierarchical": hierarchical.hierarchical_reduce,
    },
    "reduce_scatter": {
        "naive": naive.naive_reduce_scatter,
        "ring": ring.ring_reduce_scatter,
        "pairwise": pairwise.pairwise_reduce_scatter,
        "bruck": bruck.bruck_reduce_scatter,
        "halving_doubling": halving_reduce_scatter,
    },
    "scatter": {"naive": naive.naive_scatter, "binomial": binomial.binomial_scatter},
}


def _whole(op: str, schedule: Schedule) -> Schedule:
    return with_statistics(on_host(schedule)) if op == "all_reduce" else on_host(schedule)


SCHEDULES: Mapping[str, Mapping[str, Schedule]] = {
    op: {name: _whole(op, schedule) for name, schedule in there_are.items()} for op, there_are in _ON_HOST.items()
}
"""Name of an operation -> name of a schedule -> the schedule's function."""

OTHER_NAMES: Mapping[str, str] = {
    "binomial_tree": "binomial",
    "direct": "naive",
    "dissemination": "bruck",
    "doubling": "recursive_doubling",
    "halving": "halving_doubling",
    "rabenseifner": "halving_doubling",
    "recursive_halving": "halving_doubling",
    "scatter_all_gather": "ring",
    "tree": "binomial",
}
"""Alias -> name of a schedule. An alias counts only if the operation has no schedule with that
name.
"""


@dataclass(frozen=True)
class ScheduleOf:
    """The type of a setting that names a schedule of *op*, as in `Annotated[str,
    ScheduleOf("all_reduce")]`.

    *own*: one more name, of a schedule that the algorithm itself implements or maps to one of
    these. *gives*: the arguments that the algorithm passes to schedules that need them.
    """

    op: str
    own: str | None = None
    gives: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names that the setting may have.

        Schedules that need other arguments are left out: an algorithm cannot see the topology, so
        most have no sites for `hierarchical` and no weights for `bandwidth_aware`.
        """
        names = [name for name, schedule in SCHEDULES[self.op].items() if needed(schedule) <= {*self.gives}]
        return [*names, self.own] if self.own else names

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(self.names)


def needed(schedule: Schedule) -> set[str]:
    """Return the names of the arguments that *schedule* cannot do without."""
    parameters = inspect.signature(schedule).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty}


AllReduceSchedule = Annotated[str, ScheduleOf("all_reduce")]
"""The type of a setting that names an all-reduce schedule, as in `schedule: AllReduceSchedule =
"ring"`.
"""


def find(op: str, schedule: str) -> tuple[str, str, Schedule]:
    """Return (name of the operation, name of the schedule, the schedule's function). In *op* and
    *schedule*, - and _ are equivalent.

    Raise UsageError for an unknown name, or a schedule that the operation does not have.
    """
    op_name, name = op.replace("-", "_"), schedule.replace("-", "_")
    if op_name not in SCHEDULES:
        listed, hint = f"one of {', '.join(sorted(SCHEDULES))}", nearest(op_name, SCHEDULES)
        raise UsageError("op", repr(op), listed if hint.startswith("one of") else f"{listed}; {hint}")
    there_are = SCHEDULES[op_name]
    if name not in there_are:
        name = OTHER_NAMES.get(name, name)
    if name not in there_are:
        raise UsageError("schedule", f"{schedule!r} of {op_name}", f"one of {', '.join(sorted(there_are))}")
    return op_name, name, there_are[name]
