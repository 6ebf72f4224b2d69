"""The whole model of a pipeline at rank 0, now and then and at the end, where it can be evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from simcluster.algorithms.model_parallel.pipeline_plan import Plan
from simcluster.algorithms.steps import steps
from simcluster.transport import Transport
from simcluster.workloads import Replica


@dataclass(frozen=True)
class Gathering:
    """Sends all weights to rank 0 every *interval* steps, and at the end. *ranks* hold the stages, in their order."""

    node: Transport
    replica: Replica
    plan: Plan
    ranks: Sequence[int]
    interval: int | None

    def is_due(self, step: int) -> bool:
        """Return whether rank 0 has the whole model after *step*; alone, it always has."""
        last = step == self.replica.steps or tuple(self.ranks) == (0,)
        return last or (self.interval is not None and step % self.interval == 0)

    async def send(self, step: int, own: Sequence[Tensor]) -> None:
        """Send this rank's *own* weights to rank 0, or receive all there."""
        tag = f"weights/{step}"
        if self.node.rank != 0:
            await self.node.send(0, tag, own)
            return
        for rank in sorted({*self.ranks} - {0}):
            message = await self.node.recv(rank, tag)
            for place, weights in zip(self.plan.places(self.ranks.index(rank)), message.tensors, strict=True):
                self.replica.parameters[place].copy_(weights)

    async def look_on(self) -> None:
        """Hold no stage: rank 0 receives the weights; any other rank ends at once."""
        if self.node.rank == 0:
            async for step, _ in steps(self.replica, joined=True, places=[]):
                if self.is_due(step):
                    await self.send(step, [])
                    self.node.record(step=step)
