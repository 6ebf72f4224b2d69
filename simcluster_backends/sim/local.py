"""Run plain bodies as the nodes of a simulated cluster, for tests and `check_transport`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcluster.testing import ComesBack
from simcluster.topology import star
from simcluster_backends.sim.cluster import Body, Cluster

if TYPE_CHECKING:
    from simcluster.topology import Topology
    from simcluster_backends.sim.transport import SimTransport


def run_bodies(
    bodies: Sequence[Body], topology: Topology | None = None, seed: int = 0, *, comes_back: bool = False
) -> list[Any]:
    """Run each body as a node, by default on a star of ideal links; with *comes_back*, a body may raise ComesBack."""
    cluster = Cluster(topology or star(len(bodies)), seed)
    if comes_back:
        cluster.streams.gated = True
        bodies = [_returning(cluster, body) for body in bodies]
    return cluster.run(bodies)


def _returning(cluster: Cluster, body: Body) -> Body:
    async def life(node: SimTransport) -> Any:
        try:
            return await body(node)
        except ComesBack:
            cluster.crash(node.rank, "crashed", returns=True)
            cluster.loop.clock.alarm_at(cluster.loop.time(), cluster.revive, node.rank)
            await asyncio.sleep(0)  # this life is over
            raise

    return life
