"""Runs of an algorithm on replicas, in the simulator, and what came of them; quadratics of each rank's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from torch import Tensor, nn

from simcluster.algorithms import ALGORITHMS
from simcluster.errors import PeerLost
from simcluster.runs.record import NodeRecord
from simcluster.topology import Device, Topology
from simcluster.transport import Transport
from simcluster.workloads import Replica, Workload, quadratic, sgd
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
    """What became of a run: what each body returned or raised, its replica and its records."""

    results: list[Any]
    replicas: list[Replica]
    records: list[NodeRecord]

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
    def elapsed_s(self) -> float:
        return max(span.end_s for record in self.records for span in record.spans)

    @property
    def messages_sent(self) -> int:
        return sum(record.messages_sent for record in self.records)


def train(
    name: str,
    topology: Topology | int,
    *,
    workload: Workload = WORKLOAD,
    steps: int = 12,
    faults: Sequence[str] = (),
    numerics: Any = "real",
    begin: Sequence[Tensor] | None = None,
    **settings: Any,
) -> Trained:
    """Runs the algorithm *name*; without *faults* whatever it raises is raised. Rank r begins with *begin*[r]."""
    topology = star(topology) if isinstance(topology, int) else topology
    size = len(topology.workers)
    replicas = [workload.replica(rank, size, SEED, steps, numerics=numerics) for rank in range(size)]
    for replica, weights in zip(replicas, begin or (), strict=False):
        replica.load([weights.view_as(replica.parameters[0])])

    async def body(node: Transport) -> None:
        replica = replicas[node.rank]
        replica.ledger.incarnation = cluster.members[node.rank].recorder.incarnation
        await ALGORITHMS[name](node, replica, **settings)

    cluster = SimCluster(topology, SEED, faults=SimFaults(plan(topology, *faults)))
    results = cluster.run([body] * size)
    for result in results:
        if isinstance(result, BaseException) and not faults:
            raise result
    return Trained(results, replicas, [node.recorder.finish(None) for node in cluster.members])


def close(mine: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Tensor]], rounding: float = 1e-12) -> None:
    """Asserts that every rank's weights are those expected of it, to rounding."""
    assert len(mine) == len(expected)
    for weights, others in zip(mine, expected, strict=True):
        torch.testing.assert_close(list(weights), list(others), rtol=rounding, atol=rounding)


def takes_the_same_time_without_values(name: str, topology: Topology = UNEVEN, **settings: Any) -> None:
    """Asserts that every wait, message and piece of work is at its time with numerics none."""
    real, none = (train(name, topology, numerics=numerics, **settings) for numerics in ("real", "none"))
    for mine, timed in zip(real.records, none.records, strict=True):
        assert mine.spans == timed.spans
        assert mine.sent_to == timed.sent_to


def changes_something(name: str, settings: Mapping[str, Any], given: Mapping[str, Any], topology: Topology) -> None:
    """Asserts that *settings* on top of *given* lead to another trace or other weights than *given* alone."""
    plain, changed = train(name, topology, **given), train(name, topology, **{**given, **settings})
    same_weights = all(torch.equal(a, b) for a, b in zip(plain.vectors, changed.vectors, strict=True))
    assert plain.digest != changed.digest or not same_weights


def lost_somebody(result: Any) -> bool:
    """Whether *result* is a PeerLost, or a group of them."""
    if isinstance(result, BaseExceptionGroup):
        return all(lost_somebody(part) for part in result.exceptions)
    return isinstance(result, PeerLost)


def quadratics(curvatures: Sequence[Tensor], minima: Sequence[Tensor], learning_rate: float) -> Workload:
    """Rank i's loss is (x - x_i*)^T A_i (x - x_i*) / 2, every step, for as many ranks as there are *curvatures* A_i.

    Its d samples are the rows of sqrt(d) L^T, where A_i = L L^T, so half their mean square error is the quadratic; a
    batch is all of them.
    """
    d = len(minima[0])
    rows = [torch.linalg.cholesky(A.double()).T * d**0.5 for A in curvatures]
    targets = [(X @ x.double()).unsqueeze(1) for X, x in zip(rows, minima, strict=True)]

    def partition(labels: Any, shards: int, rng: np.random.Generator) -> list[Any]:
        return [np.arange(rank * d, (rank + 1) * d) for rank in range(shards)]

    return Workload(
        model=lambda: nn.Linear(d, 1, bias=False, dtype=torch.float64),
        loss=lambda outputs, wanted: (outputs - wanted).square().mean() / 2,
        train=(torch.cat(rows), torch.cat(targets)),
        optimizer=sgd(learning_rate),
        batch_size=d,
        partition=partition,
    )
