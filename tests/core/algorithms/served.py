"""Parameter servers on clusters without a network to speak of: what is left is waiting, and staleness.

Workers take a second for a gradient, times a straggler's factor. The server, n0, takes 100 ns for an update, so that
what was there at one moment is answered one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simcluster.runs.record import NodeRecord
from simcluster.topology import Device
from simcluster.topology.model.stragglers import Constant, Straggler
from simcluster.workloads import Replica, Workload, sgd
from tests.core.algorithms.trained import train
from tests.support.clusters import star


class Bowl(nn.Module):
    """|x|^2 / 2 + x . z for noise z: the gradient is x + z."""

    def __init__(self, start: Sequence[float]) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, noise: Tensor) -> Tensor:
        return (self.x.square() / 2 + self.x * noise).sum(1)


def bowl(learning_rate: float, *, sigma: float = 0.0, size: int = 1, samples: int = 64) -> Workload:
    """Down a bowl from (1, 1, ...) with *size* coordinates and noise of deviation *sigma*, one sample a batch."""
    noise = sigma * torch.randn(samples, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Workload(
        model=lambda: Bowl([1.0] * size),
        loss=lambda outputs, _: outputs.mean(),
        train=(noise, torch.zeros(samples)),
        optimizer=sgd(learning_rate),
        batch_size=1,
    )


@dataclass
class Served:
    """What came of a run."""

    results: list[Any]
    replicas: list[Replica]
    records: list[NodeRecord]

    def values(self, name: str, rank: int = 0) -> list[float]:
        return [metric.value for metric in self.records[rank].metrics if metric.name == name]

    def times(self, name: str, rank: int = 0) -> list[float]:
        return [metric.time_s for metric in self.records[rank].metrics if metric.name == name]

    def metric_steps(self, name: str, rank: int = 0) -> list[int]:
        return [metric.step for metric in self.records[rank].metrics if metric.name == name]

    def last(self, name: str, rank: int = 0) -> int:
        return int((self.values(name, rank) or [0])[-1])

    @property
    def pushed(self) -> int:
        """By all ranks."""
        return sum(self.last("pushed", rank) for rank in range(len(self.records)))

    @property
    def weights(self) -> list[Tensor]:
        return [replica.parameters[0] for replica in self.replicas]

    @property
    def digest(self) -> str:
        return "".join(record.digest for record in self.records)


def serve(
    name: str,
    stragglers: Sequence[Straggler | None],
    steps: int,
    workload: Workload | None = None,
    *,
    seed: int = 3,
    faults: tuple[str, ...] = (),
    latency_s: float = 0.0,
    server_s: float = 1e-7,
    check: bool = True,
    **settings: Any,
) -> Served:
    """Runs algorithm *name* with one worker for each of *stragglers* and a server that does not train, unless the
    settings say so. Nothing is computed if there is no *workload*. With *check* everybody must end well.
    """
    settings = {"server_trains": False, **settings}
    size = len(stragglers) + 1
    devices = {
        f"n{rank}": Device("slow", 1e18, work_overhead_s=1.0, straggler=straggler)
        for rank, straggler in enumerate(stragglers, start=1)
    }
    topology = star(
        size, bandwidth_Bps=1e15, latency_s=latency_s, n0=Device("server", 1e18, work_overhead_s=server_s), **devices
    )
    done = train(
        name, topology, workload=workload or bowl(0.1), steps=steps, seed=seed, faults=faults, dead_s=0.5,
        fails=not check, numerics="none" if workload is None else "real", **settings,
    )  # fmt: skip
    return Served(done.results, done.replicas, done.records)


def equal(count: int) -> list[Straggler | None]:
    return [None] * count


def slow(*factors: float) -> list[Straggler | None]:
    return [Constant(factor) for factor in factors]


def harmonic(n: int) -> float:
    return sum(1 / i for i in range(1, n + 1))
