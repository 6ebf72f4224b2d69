"""The whole model at rank 0, now and then and at the end, where it can be evaluated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simcluster.algorithms.model_parallel.pipeline_plan import PipelinePlan
from simcluster.algorithms.steps import steps
from simcluster.paths.spool import IN_MEMORY_BYTES
from simcluster.payload import lend, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica

STRETCH_BYTES = 16 * 2**20
"""Weights are gathered in stretches of the model of at most this size, or of one parameter."""

AHEAD = 2
"""The number of stretches on their way at a time."""


async def gather(
    node: Transport,
    replica: Replica,
    own: Mapping[int, Tensor],
    holders: Callable[[int], Sequence[int]],
    tag: str,
    whole: Callable[[int, Sequence[Tensor]], Tensor],
) -> None:
    """Gather the model at rank 0 from each rank's *own* weights by place, so that rank 0 never has to hold it whole.

    *holders* returns the ascending ranks that hold a place, and *whole* its weights from what they hold. The first
    stretches leave at once; the others when rank 0 has taken the one AHEAD of them, and asks for them.
    """
    stretches = _stretches(replica)
    ranks = [sorted({rank for place in places for rank in holders(place)} - {0}) for places in stretches]
    for number, places in enumerate(stretches):
        name = f"{tag}/{number}" if number else tag
        if node.rank in ranks[number]:
            if number >= AHEAD:
                await node.recv(0, f"{tag}/go {number}")
            await node.send(0, name, lend(*[own[place] for place in places if node.rank in holders(place)]))
        if node.rank != 0:
            continue
        found = {rank: iter((await node.recv(rank, name)).tensors) for rank in ranks[number]}
        for place in places:
            parts = [next(found[rank]) if rank else own[place] for rank in holders(place)]
            replica.put({place: whole(place, parts)})
        for rank in ranks[number + AHEAD] if number + AHEAD < len(ranks) else ():
            await node.send(rank, f"{tag}/go {number + AHEAD}", None)


def gathering_bytes(replica: Replica, received: Collection[int]) -> int:
    """Return what rank 0 holds while it gathers: AHEAD stretches of *received* places, and the file if it is small."""
    sizes = [
        sum(replica.shapes[place].nbytes for place in places if place in received) for places in _stretches(replica)
    ]
    ahead = max(sum(sizes[number : number + AHEAD]) for number in range(len(sizes)))
    whole = sum(shape.nbytes for shape in replica.shapes)
    return ahead + (whole if whole <= IN_MEMORY_BYTES else 0)


def _stretches(replica: Replica) -> list[list[int]]:
    """Return the places of the model's parameters in stretches, in order."""
    stretches: list[list[int]] = []
    left_bytes = 0
    for place, shape in enumerate(replica.shapes):
        if not stretches or shape.nbytes > left_bytes:
            stretches.append([])
            left_bytes = STRETCH_BYTES
        stretches[-1].append(place)
        left_bytes -= shape.nbytes
    return stretches


@dataclass(frozen=True)
class WeightGathering:
    """Sends all weights to rank 0 every *interval* steps, and at the end. *ranks* hold the stages, in their order."""

    node: Transport
    replica: Replica
    plan: PipelinePlan
    ranks: Sequence[int]
    interval: int | None
    before: list[Tensor]  # the running statistics at the start

    def is_due(self, step: int) -> bool:
        """Return whether rank 0 has the whole model after *step*; alone, it always has."""
        last = step == self.replica.steps or tuple(self.ranks) == (0,)
        return last or (self.interval is not None and step % self.interval == 0)

    async def send(self, step: int, own: Sequence[Tensor]) -> None:
        """Send this rank's *own* weights to rank 0, or receive all there."""
        holders = {place: sorted(self.ranks[i] for i in found) for place, found in self.plan.holders().items()}
        mine = [place for place, found in holders.items() if self.node.rank in found]
        held = dict(zip(mine, own, strict=True))
        # A parameter that several ranks share is the same on all of them.
        tag = f"weights/{step}"
        await gather(self.node, self.replica, held, holders.__getitem__, tag, lambda _, parts: parts[-1])
        if self.before:
            await self._send_statistics(f"statistics/{step}")

    async def _send_statistics(self, tag: str) -> None:
        """Send rank 0 the running statistics, each of which only the rank that holds its layer has changed."""
        now = self.replica.statistics()
        if self.node.rank:
            moved = torch.stack([(new != old).any() for new, old in zip(now, self.before, strict=True)])
            await self.node.send(0, tag, pack(*now, moved))
            return
        for rank in (rank for rank in self.ranks if rank):
            *theirs, moved = (await self.node.recv(rank, tag)).tensors
            if not moved.is_meta:
                now = [new if is_new else old for old, new, is_new in zip(now, theirs, moved, strict=True)]
        self.replica.load_statistics(now)

    async def look_on(self) -> None:
        """Hold no stage: rank 0 receives the weights; any other rank ends at once."""
        if self.node.rank == 0:
            async for step, _ in steps(self.replica, joined=True, places=[]):
                if self.is_due(step):
                    await self.send(step, [])
                    self.node.record(step=step)
