"""Runs of algorithms that train one model together, in the simulator, and what their tests ask of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from simcluster.runs.record import NodeRecord
from simcluster.topology import Topology
from simcluster.workloads import Replica, Workload
from tests.core.algorithms.trained import SEED, train


def run(
    name: str, workload: Workload, topology: Topology, steps: int = 3, **more: Any
) -> tuple[list[Any], list[Replica], list[NodeRecord]]:
    """Return what every rank returned or raised, its replica, its record."""
    done = train(name, topology, workload=workload, steps=steps, **{"fails": True} | more)
    return done.results, done.replicas, done.records


def well(*args: Any, **more: Any) -> tuple[list[Replica], list[NodeRecord]]:
    """Do the same, and raise what a rank raised."""
    return run(*args, fails=False, **more)[1:]


def losses_alone(workload: Workload, size: int, steps: int) -> list[float]:
    """Return the losses of one process on the joined batches of *size* ranks."""
    alone, losses = workload.replica(0, size, SEED, steps), []
    for batch in alone.joined_batches():
        loss, gradients = alone.loss_and_gradients(batch)
        losses.append(loss)
        alone.apply(gradients)
    return losses


def values(record: NodeRecord, name: str) -> list[float]:
    return [metric.value for metric in record.metrics if metric.name == name]


def same(mine: list[Tensor], reference: list[Tensor]) -> None:
    """To what float32 leaves of sums in another order."""
    for a, b in zip(mine, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-6)


def cause(result: Any) -> Any:
    """Return what a rank raised, without the groups of tasks around it."""
    while isinstance(result, BaseExceptionGroup):
        result = result.exceptions[0]
    return result
