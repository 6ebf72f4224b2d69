"""Runs of the gossip algorithms in the simulator: replicas that begin apart, rates that learn nothing, noise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from torch import Tensor, nn

from simcluster.algorithms import ALGORITHMS
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, quadratic, sgd
from tests.support.clusters import star
from tests.support.plans import plan

SEED = 3
INSTANT = Device("instant", flops_per_s=1e24)
"""Work takes no time to speak of."""

WORKLOAD = quadratic(features=6, batch_size=4, dtype="float64")
STILL = replace(WORKLOAD, optimizer=sgd(1e-300))
"""Whatever moves, moves by averaging."""


@dataclass
class Ran:
    """What came of a run, by rank."""

    results: list[Any]
    replicas: list[Replica]
    records: list[NodeRecord]

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """A row for each rank."""
        return np.stack([torch.cat([p.reshape(-1) for p in r.parameters]).double().numpy() for r in self.replicas])

    @property
    def end_s(self) -> float:
        return max(metric.time_s for record in self.records for metric in record.metrics)

    def values(self, rank: int, name: str) -> list[float]:
        return [metric.value for metric in self.records[rank].metrics if metric.name == name]


def run(
    name: str,
    topology: Topology | int,
    *,
    workload: Workload = WORKLOAD,
    steps: int = 12,
    apart: bool = False,
    faults: Sequence[str] = (),
    fails: bool = False,
    limit_s: float | None = None,
    keepers: Sequence[Any] = (),
    **settings: Any,
) -> Ran:
    """On *topology*, or a star of so many, for *limit_s* at most. *apart*: rank r begins with r more than rank 0;
    *keepers*, by rank, are handed what an algorithm keeps.

    Unless it *fails*, whatever a rank raised is raised here.
    """
    topology = star(topology) if isinstance(topology, int) else topology
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, SEED, steps) for rank in range(size)]
    for replica, keeper in zip(replicas, keepers, strict=False):
        replica.keeper = keeper
    if apart:
        for rank, replica in enumerate(replicas):
            replica.load([parameter + rank for parameter in replica.parameters])

    async def body(node: Transport) -> None:
        replicas[node.rank].ledger.incarnation = cluster.members[node.rank].recorder.incarnation
        try:
            async with asyncio.timeout(limit_s):
                await ALGORITHMS[name](node, replicas[node.rank], **settings)
        except TimeoutError:
            assert limit_s is not None

    cluster = SimCluster(topology, SEED, faults=SimFaults(plan(topology, *faults)))
    results = cluster.run([body] * size)
    for result in results:
        if isinstance(result, BaseException) and not fails:
            raise result
    return Ran(results, replicas, [node.recorder.finish(None) for node in cluster.members])


def noise(dimensions: int, ranks: int, steps: int, learning_rate: float) -> Workload:
    """The gradient of each step is one draw of a standard normal, independent of everything, on *ranks* ranks."""
    drawn = torch.from_numpy(np.random.default_rng(8).standard_normal((ranks * steps, dimensions)))
    return Workload(
        model=lambda: nn.Linear(dimensions, 1, bias=False, dtype=torch.float64),
        loss=_output,
        train=(drawn, torch.zeros(len(drawn))),
        optimizer=sgd(learning_rate),
        batch_size=1,
    )


def _output(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of one sample z: w z, whose gradient is z."""
    return outputs.mean() + 0 * targets.mean()
