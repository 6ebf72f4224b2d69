"""Runs of plain coroutines in the simulator under worlds, with what the log of faults says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.worlds.runner import WorldRunner

from simcluster.errors import PeerLost
from simcluster.fault_plans.kinds import Fault
from simcluster.topology import Topology
from simcluster.transport import Cost, Transport
from simcluster.worlds import PlannedWorld
from tests.support.clusters import star

Body = Callable[[Transport], Awaitable[Any]]
WorldFunction = Callable[..., Any]


@dataclass
class WorldRun:
    """The results of the nodes, the rows of the log, and the number of faults that it has no row for."""

    results: list[Any]
    rows: list[dict[str, Any]]
    left_out: int

    @property
    def happened(self) -> list[tuple[Any, ...]]:
        """(kind, target, spells) of each fault."""
        return [(row["kind"], row["target"], *map(tuple, row["spells_s"])) for row in self.rows]


def links(size: int = 2) -> Topology:
    """Links of 1 MB/s and 50 ms, so that a route takes 100 ms."""
    return star(size, bandwidth_Bps=1e6, latency_s=0.05)


def run_under(
    bodies: Sequence[Body], *worlds: WorldFunction, topology: Topology | None = None,
    faults: Sequence[Fault] = (), seed: int = 0, **options: Any,
) -> WorldRun:  # fmt: skip
    """Run *bodies* under *worlds* and *faults*; an error of a body that is no PeerLost is raised."""
    plan = SimFaults(faults, more=bool(worlds), **options)
    cluster = SimCluster(topology or links(len(bodies)), seed, faults=plan)
    planned = [PlannedWorld(world.__name__, world) for world in worlds]
    cluster.worlds = WorldRunner(planned, cluster, plan).running
    results = cluster.run(bodies)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, PeerLost):
            raise result
    return WorldRun(results, plan.log.rows(), plan.log.left_out)


def now() -> float:
    """Return the virtual time."""
    return asyncio.get_running_loop().time()


def works(seconds: float) -> Body:
    """Return a body that works for *seconds* of an undisturbed device, and returns the time."""

    async def body(node: Transport) -> float:
        await node.compute(lambda: None, cost=Cost(flops=seconds * 1e9))
        return now()

    return body
