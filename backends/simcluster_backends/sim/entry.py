"""The entry point of the simulator. It imports modules on demand: plain flows need no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simcluster.backend import Simulator

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.event_order import EventOrder
    from simcluster.runs.record import RunRecord
    from simcluster.topology import Topology
    from simcluster.topology.plain_flows import PlainFlow


class SimulatorEntry(Simulator):
    """The backend that simulates all nodes in one asyncio loop on SimPy's clock."""

    module = "simcluster_backends.sim.run"

    def run_cluster(self, job: ClusterJob) -> RunRecord:
        from simcluster_backends.sim.run import run_cluster

        return run_cluster(job)

    def check_options(self, options: Mapping[str, Any]) -> None:
        from simcluster_backends.sim.run import check_options

        check_options(options)

    def run_bodies(self, bodies: Sequence[Callable[[Any], Any]], topology: Topology, seed: int = 0) -> list[Any]:
        from simcluster_backends.sim.run import run_bodies

        return run_bodies(bodies, topology, seed)

    def replay(self, job: ClusterJob, orders: Sequence[EventOrder]) -> RunRecord:
        from simcluster_backends.sim.replay.player import replay_cluster

        return replay_cluster(job, orders)

    def run_recorded(self, job: ClusterJob, work: Sequence[Sequence[tuple[str, float]]]) -> RunRecord:
        from simcluster_backends.sim.replay.what_if import run_recorded

        return run_recorded(job, work)

    def finish_times(
        self, topology: Topology, flows: Sequence[PlainFlow], model: str | None = None, seed: int = 0
    ) -> list[float]:
        from simcluster_backends.sim.plain_flows import finish_times

        return finish_times(topology, flows, model, seed)


BACKEND = SimulatorEntry()
