"""The simulated cluster that worlds act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simcluster.fault_plans import kinds

if TYPE_CHECKING:
    from simcluster_backends.sim.cluster import SimCluster
    from simcluster_backends.sim.faults import SimFaults


class SimStage:
    """See `common.worlds.stage.WorldStage`."""

    def __init__(self, cluster: SimCluster, faults: SimFaults) -> None:
        self.topology = cluster.topology
        self.seed = cluster.seed
        self._cluster = cluster
        self._faults = faults

    def now_s(self) -> float:
        return self._cluster.loop.time()

    def lives(self, rank: int) -> bool:
        return self._cluster.lives(rank)

    def gone(self, rank: int) -> str | None:
        departure = self._cluster.membership.departed.get(rank)
        return departure.reason if departure is not None else None

    def steps(self, rank: int) -> int:
        return self._cluster.members[rank].recorder.record.steps

    def sent(self) -> Iterator[tuple[str, str, int, Sequence[int]]]:
        names = self.topology.workers
        for member in self._cluster.members:
            record = member.recorder.record
            for peer, (_, size_bytes) in record.sent_to.items():
                yield member.name, names[peer], size_bytes, record.sent_over.get(peer, ())

    def begin(self, fault: kinds.Fault) -> int:
        return self._faults.begin(fault)

    def end(self, number: int) -> None:
        self._faults.end(number)
