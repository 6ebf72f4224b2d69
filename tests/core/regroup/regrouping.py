"""Ranks that go in step on as little as that takes, a number each: for laws and model checks of regrouping."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults
from simcluster_backends.sim.transport import SimTransport

from simcluster.collectives import ring_all_reduce
from simcluster.fault_plans.kinds import Fault
from simcluster.regroup.capture_memory import Capture, CaptureMemory, put_back
from simcluster.regroup.messages import Decision
from simcluster.regroup.supervisor import Supervisor
from simcluster.topology import Topology
from simcluster.transport import Transport
from simcluster.workloads.progress.progress import Progress
from tests.support.clusters import now, star

STEPS = 6
LATENCY_S = 50e-6
"""From node to node. A step of n ranks is a ring of one number: 2 (n-1) latencies."""
DEAD_S = 300e-6


class Number(Progress):
    """What is trained: x."""

    computes = True

    def __init__(self) -> None:
        self.x = torch.zeros(1, dtype=torch.float64)

    def checkpoint_state(self) -> dict[str, Any]:
        return {"model": {"x": self.x}, "optimizer": {}, "layers": {}}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        self.x = state["model"]["x"]


class Counting:
    """A trainee. *changes*: the steps that its groups went on from. *ended*: (number of the group, its members, x) if
    it came to the end there, at *ended_s*.
    """

    def __init__(self, node: SimTransport) -> None:
        self.node = node
        self.changes: list[int] = []
        self.ended: tuple[int, list[int], float] | None = None
        self.ended_s = 0.0

    def begin(self, node: Transport, number: int, memory: CaptureMemory, capture: Capture | None) -> None:
        self._group, self._number, self.replica = node, number, Number()
        if capture is not None:
            put_back(capture, self.replica, node.rng, capture.batches)  # type: ignore[arg-type]
        self.replica.is_to_leave = lambda: self.node.recorder.told_to_leave
        memory.begin(self.replica, node.rng, node.size)  # type: ignore[arg-type]
        self.ended = None

    def train(self) -> Coroutine[Any, Any, object]:
        return self._train()

    async def _train(self) -> None:
        node, replica = self._group, self.replica
        for step in range(replica.done + 1, STEPS + 1):
            mine = replica.x * 3 + node.rank + step
            replica.x = replica.x + await ring_all_reduce(node, mine, f"sum/{step}") / node.size
            await replica.checkpoint(step)
        members = getattr(node, "members", list(range(node.size)))
        self.ended = self._number, list(members), float(replica.x)
        self.ended_s = now()

    def regrouped(self, decision: Decision, step: int, batches: int) -> None:
        self.changes.append(step)


class Outcome:
    """What became of each rank in a simulated run: its trainee of each life, and what it raised."""

    def __init__(self, size: int, faults: Sequence[Fault], topology: Topology | None = None) -> None:
        self.lives: list[list[Counting]] = [[] for _ in range(size)]
        self.cluster = SimCluster(topology or star(size, latency_s=LATENCY_S / 2), faults=SimFaults(faults, DEAD_S))
        self.results = self.cluster.run([self._body] * size)

    async def _body(self, node: SimTransport) -> str:
        trainee = Counting(node)
        self.lives[node.rank].append(trainee)
        names = self.cluster.topology.workers
        await Supervisor(node, names, trainee, node.recorder.incarnation).run()
        return "ended"

    @property
    def ended(self) -> dict[int, tuple[int, list[int], float]]:
        """Of those who ended well."""
        found = {}
        for rank, result in enumerate(self.results):
            if result == "ended":
                ended = self.lives[rank][-1].ended
                assert ended is not None, rank
                found[rank] = ended
        return found


def alone(*groups: tuple[int, Sequence[int]]) -> float:
    """x as one process computes it: groups of so many ranks, each up to the step given with it."""
    x, step = 0.0, 0
    for until, ranks in groups:
        size = len(ranks)
        while step < until:
            step += 1
            x += sum(x * 3 + rank + step for rank in range(size)) / size
    return x
