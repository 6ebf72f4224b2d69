"""Runs of an algorithm on replicas, in the simulator, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from torch import Tensor

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import PeerLost
from simcluster.fault_plans.kinds import DEAD_S
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, quadratic
from tests.support.clusters import star
from tests.support.plans import plan

SEED = 3
WORKLOAD = quadratic(features=6, batch_size=4, dtype="float64")

WORK = {"flops_per_s": 1e15, "work_overhead_s": 1e-3}
EVEN = star(3, **{f"n{rank}": Device("even", **WORK) for rank in range(3)})
"""Three whose every piece of work takes a millisecond."""
UNEVEN = star(3, n0=Device("even", **WORK), n1=Device("even", **WORK), n2=Device("slow", 1e15, work_overhead_s=4e-3))
"""The same, the last of them four times as slow."""


@dataclass(frozen=True)
class Trained:
    """The outcome of a run: what each body returned or raised, its replica and its record, and the virtual time."""

    results: list[Any]
    replicas: list[Replica]
    records: list[NodeRecord]
    elapsed_s: float

    def values(self, rank: int, name: str) -> list[float]:
        return [metric.value for metric in self.records[rank].metrics if metric.name == name]

    def sizes(self, tag: str) -> list[int]:
        """Bytes of every message sent whose tag begins so."""
        spans = [span for record in self.records for span in record.spans]
        return [span.size_bytes for span in spans if span.kind == "send" and span.tag.startswith(tag)]

    @property
    def weights(self) -> list[list[Tensor]]:
        return [replica.parameters for replica in self.replicas]

    @property
    def vectors(self) -> list[Tensor]:
        return [torch.cat([parameter.flatten() for parameter in weights]) for weights in self.weights]

    @property
    def digest(self) -> str:
        return "".join(record.digest for record in self.records)

    @property
    def messages_sent(self) -> int:
        return sum(record.messages_sent for record in self.records)


def train(
    name: str,
    topology: Topology | int,
    *,
    workload: Workload = WORKLOAD,
    steps: int = 12,
    seed: int = SEED,
    faults: Sequence[str] = (),
    dead_s: float = DEAD_S,
    fails: bool | None = None,
    numerics: Any = "real",
    shortcuts: bool | str = True,
    begin: Callable[[list[Replica]], object] = len,
    **settings: Any,
) -> Trained:
    """Run the algorithm *name* after *begin* has the replicas.

    Raise what a rank raised, unless the run *fails*: by default it may if there are *faults*.
    """
    topology = star(topology) if isinstance(topology, int) else topology
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, seed, steps, numerics=numerics) for rank in range(size)]
    begin(replicas)

    async def body(node: Transport) -> None:
        replica = replicas[node.rank]
        replica.ledger.incarnation = cluster.members[node.rank].recorder.incarnation
        await ALGORITHMS[name](node, replica, **settings)

    cluster = SimCluster(topology, seed, faults=SimFaults(plan(topology, *faults), dead_s), shortcuts=shortcuts)
    results = cluster.run([body] * size)
    for result in results:
        if isinstance(result, BaseException) and not (faults if fails is None else fails):
            raise result
    records = [node.recorder.finish(None) for node in cluster.members]
    return Trained(results, replicas, records, cluster.loop.time())


def close(mine: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Tensor]], rounding: float = 1e-12) -> None:
    """Asserts that every rank's weights are those expected of it, to rounding."""
    assert len(mine) == len(expected)
    for weights, others in zip(mine, expected, strict=True):
        torch.testing.assert_close(list(weights), list(others), rtol=rounding, atol=rounding)


def lost_somebody(result: Any) -> bool:
    """Whether *result* is a PeerLost, or a group of them."""
    if isinstance(result, BaseExceptionGroup):
        return all(lost_somebody(part) for part in result.exceptions)
    return isinstance(result, PeerLost)
