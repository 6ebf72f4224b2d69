"""The telemetry of a simulated cluster while it runs; observing it does not affect it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcluster.errors import ABSENT
from simcluster.watching.board import NodeTelemetry, Telemetry
from simcluster.watching.telling import Noted, link_telemetry, node_telemetry

if TYPE_CHECKING:
    from simcluster.fault_plans.log import FaultLog
    from simcluster_backends.sim.cluster import Cluster


class Teller:
    """The telemetry of *cluster* and of the faults in *log*; it remembers what it has already read."""

    def __init__(self, cluster: Cluster, log: FaultLog) -> None:
        self._cluster, self._log = cluster, log
        self._noted = [Noted() for _ in cluster.members]

    def telemetry(self) -> Telemetry:
        """Return everything known at this instant of the simulated clock."""
        cluster = self._cluster
        sent = [node.recorder.record.sent_to for node in cluster.members]
        links = link_telemetry(cluster.topology.workers, cluster.topology, sent)
        nodes = [self._node(rank) for rank in range(len(cluster.members))]
        return Telemetry(elapsed_s=cluster.loop.time(), nodes=nodes, links=links, faults=self._log.rows())

    def _node(self, rank: int) -> NodeTelemetry:
        node, noted = self._cluster.members[rank], self._noted[rank]
        record = node.recorder.record
        noted.read(record.metrics, record.spans)
        return node_telemetry(
            node.name,
            rank,
            self._state(rank),
            noted,
            record.sent_to,
            bytes_received=record.bytes_received,
            step=record.steps,
            compute_s=record.rest.compute_s if record.rest is not None else 0.0,
            computing=node.computing,
            waits=node.waits(),
            reason=self._cluster.gone.get(rank, ""),
        )

    def _state(self, rank: int) -> str:
        if self._cluster.lives(rank):
            return "running"
        if self._cluster.gone.get(rank) == ABSENT:
            return "expected"
        return "ended" if self._cluster.members[rank].alive else "lost"
