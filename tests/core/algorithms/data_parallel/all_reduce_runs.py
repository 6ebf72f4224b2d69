"""Simulated runs of all_reduce_dp."""

from __future__ import annotations

from typing import Any

from simcluster_backends.sim.cluster import SimCluster

from simcluster.algorithms import all_reduce_dp
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import TwoPoint
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, quadratic
from tests.support.clusters import star, with_nodes

STEPS, SEED = 12, 3
WORKLOAD = quadratic(features=6, batch_size=4, dtype="float64")
USUAL = {"schedule": "ring", "initial_weights": "seed", "accumulate": 1, "staleness": 0}
ALL = {"kind": "top_k", "fraction": 1.0}


def train(
    topology: Topology, workload: Workload = WORKLOAD, steps: int = STEPS, **settings: Any
) -> tuple[list[Replica], list[NodeRecord], float]:
    """(every rank's replica, its record, the virtual time that all took)."""
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, SEED, steps) for rank in range(size)]

    async def body(node: Transport) -> None:
        await all_reduce_dp(node, replicas[node.rank], **settings)

    cluster = SimCluster(topology, SEED)
    for result in cluster.run([body] * size):
        if isinstance(result, BaseException):
            raise result
    records = [node.recorder.finish(None) for node in cluster.members]
    return replicas, records, cluster.loop.time()


def values(record: NodeRecord, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in record.metrics if metric.name == name]


def moody(size: int) -> Topology:
    """Every node takes 10 times as long for one piece of work in five."""
    return with_nodes(star(size), device=Device("moody", 1e6, straggler=TwoPoint(10.0, 0.2)))
