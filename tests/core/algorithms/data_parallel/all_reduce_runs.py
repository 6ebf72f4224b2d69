"""Simulated runs of all_reduce_dp."""

from __future__ import annotations

from typing import Any

from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.topology.model.stragglers import TwoPoint
from simcluster.workloads import Replica
from tests.core.algorithms import trained
from tests.core.algorithms.trained import SEED as SEED
from tests.core.algorithms.trained import WORKLOAD as WORKLOAD
from tests.support.clusters import star, with_nodes

STEPS = 12
USUAL = {"schedule": "ring", "initial_weights": "seed", "accumulate": 1, "staleness": 0}
ALL = {"kind": "top_k", "fraction": 1.0}


def train(topology: Topology, **more: Any) -> tuple[list[Replica], list[NodeRecord], float]:
    """(every rank's replica, its record, the virtual time that all took)."""
    done = trained.train("all_reduce_dp", topology, **more)
    return done.replicas, done.records, done.elapsed_s


def values(record: NodeRecord, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in record.metrics if metric.name == name]


def moody(size: int) -> Topology:
    """Every node takes 10 times as long for one piece of work in five."""
    return with_nodes(star(size), device=Device("moody", 1e6, straggler=TwoPoint(10.0, 0.2)))
