"""Runs of the gossip algorithms in the simulator: replicas that begin apart, rates that learn nothing, noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.workloads import Replica, Workload, sgd
from tests.core.algorithms.trained import SEED as SEED
from tests.core.algorithms.trained import WORKLOAD, train

INSTANT = Device("instant", flops_per_s=1e24)
"""Work takes no time to speak of."""

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
    apart: bool = False,
    fails: bool = False,
    keepers: Sequence[Any] = (),
    **more: Any,
) -> Ran:
    """Run the algorithm *name* on *topology*, or on a star of that size; unless it *fails*, raise what a rank raised.

    *apart*: rank r begins with r more than rank 0. *keepers*, by rank, get what an algorithm keeps.
    """

    def begin(replicas: list[Replica]) -> None:
        for replica, keeper in zip(replicas, keepers, strict=False):
            replica.keeper = keeper
        if apart:
            for rank, replica in enumerate(replicas):
                replica.load([parameter + rank for parameter in replica.parameters])

    done = train(name, topology, workload=workload, fails=fails, begin=begin, **more)
    return Ran(done.results, done.replicas, done.records)


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
