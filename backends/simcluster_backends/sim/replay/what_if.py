"""A simulated run with work durations recorded on real nodes; order and network are simulated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.forwarding import Forwarding
from simcluster.transport import Cost
from simcluster_backends.common.arguments import name_of
from simcluster_backends.sim import run_cluster
from simcluster_backends.sim.devices import DeviceModel

if TYPE_CHECKING:
    from simcluster.fault_plans.slowdown import Factors
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord
    from simcluster_backends.sim.loop.clock import Clock

T = TypeVar("T")
Pieces = Sequence[tuple[str, float]]
"""The work of one node, in order: the name and seconds of each piece."""


def run_recorded(job: ClusterJob, pieces: Sequence[Pieces]) -> RunRecord:
    """Run *job* with recorded durations: *pieces* has the recorded work of each rank.

    The n-th piece of work with a name takes as long as the n-th recorded one with that name.
    Further pieces take the mean time of their name. A piece with a name that was not recorded takes
    the time of the modelled device.
    """
    return run_cluster(job, WorkNamer, lambda rank, model: RecordedDevice(model, pieces[rank]))


class RecordedDevice(DeviceModel):
    """A device that takes the recorded time for work, and the time of *model* for unknown work.

    The *kind* of a cost is the name of the work.
    """

    def __init__(self, model: DeviceModel, pieces: Pieces) -> None:
        self.slowdown = model.slowdown
        self._model = model
        self._modelled = False
        self._left: dict[str, deque[float]] = {}
        for name, took_s in pieces:
            self._left.setdefault(name, deque()).append(took_s)
        self._mean_s = {name: fmean(took_s) for name, took_s in self._left.items()}

    def start(self, cost: Cost, now_s: float) -> float:
        left = self._left.get(cost.kind)
        self._modelled = left is None
        if left is None:
            return self._model.start(cost, now_s)
        return left.popleft() if left else self._mean_s[cost.kind]

    def change(self, faults: Factors, clock: Clock) -> None:
        """Do nothing: the recorded times contain slowdowns."""

    def stop(self, now_s: float) -> None:
        if self._modelled:
            self._model.stop(now_s)


class WorkNamer(Forwarding):
    """A node that tells its device the name of each piece of work."""

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        named = replace(cost, kind=name_of(work)) if isinstance(cost, Cost) else cost
        return await super().compute(work, *args, cost=named, **kwargs)
