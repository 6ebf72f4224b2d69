"""Runs of algorithms that train one model together, in the simulator, and what their tests ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from torch import Tensor

from simcluster.runs.record import NodeRecord
from simcluster.topology import Topology
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload
from tests.support.plans import plan

SEED = 3


def run(
    algorithm: Callable[..., Any],
    workload: Workload,
    topology: Topology,
    steps: int = 3,
    faults: tuple[str, ...] = (),
    numerics: Any = "real",
    **settings: Any,
) -> tuple[list[Any], list[Replica], list[NodeRecord]]:
    """What every rank returned or raised, its replica, its record."""
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, SEED, steps, numerics=numerics) for rank in range(size)]

    async def body(node: Transport) -> None:
        await algorithm(node, replicas[node.rank], **settings)

    cluster = SimCluster(topology, SEED, faults=SimFaults(plan(topology, *faults)))
    results = cluster.run([body] * size)
    return results, replicas, [node.recorder.finish(None) for node in cluster.members]


def well(*args: Any, **kwargs: Any) -> tuple[list[Replica], list[NodeRecord]]:
    """`run`, and whatever a rank raised is raised."""
    results, replicas, records = run(*args, **kwargs)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return replicas, records


def values(record: NodeRecord, name: str) -> list[float]:
    return [metric.value for metric in record.metrics if metric.name == name]


def same(mine: list[Tensor], reference: list[Tensor]) -> None:
    """To what float32 leaves of sums in another order."""
    for a, b in zip(mine, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-6)
