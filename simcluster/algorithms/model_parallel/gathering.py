"""Gathering of the whole model at rank 0, at intervals and at the end, so that rank 0 can evaluate
it.
"""

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
"""The maximum size of a stretch of weights that is sent at once. A larger parameter is a stretch by
itself.
"""

AHEAD = 2
"""The maximum number of stretches in flight."""


async def gather(
    node: Transport,
    replica: Replica,
    own: Mapping[int, Tensor],
    holders: Callable[[int], Sequence[int]],
    tag: str,
    whole: Callable[[int, Sequence[Tensor]], Tensor],
) -> None:
    """Gather the model at rank 0 from each rank's *own* weights, which are keyed by index in
    `Replica.parameters`. Rank 0 need never hold the whole model.

    *holders* returns the ranks that hold (a part of) the weights at an index, ascending. *whole*
    joins these parts into the weights at an index. The first AHEAD stretches leave at once; rank 0
    asks for stretch n when it has received stretch n - AHEAD.
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
    """Return the bytes that rank 0 holds during a gather: AHEAD stretches of the weights at the
    *received* indices, and the file of weights if it is small enough to be kept in memory.
    """
    sizes = [
        sum(replica.shapes[place].nbytes for place in places if place in received) for places in _stretches(replica)
    ]
    ahead = max(sum(sizes[number : number + AHEAD]) for number in range(len(sizes)))
    whole = sum(shape.nbytes for shape in replica.shapes)
    return ahead + (whole if whole <= IN_MEMORY_BYTES else 0)


def _stretches(replica: Replica) -> list[list[int]]:
    """Return the indices of the model's parameters, in order, grouped into stretches."""
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
    """The gathering of a pipeline's weights at rank 0, every *interval* steps and at the end.

    *ranks*: the ranks that hold the stages, first to last.
    """

    node: Transport
    replica: Replica
    plan: PipelinePlan
    ranks: Sequence[int]
    interval: int | None
    before: list[Tensor]  # the running statistics at the start

    def is_due(self, step: int) -> bool:
        """Return whether rank 0 has the whole model after *step*. This is always so if it holds all
        stages alone.
        """
        last = step == self.replica.steps or tuple(self.ranks) == (0,)
        return last or (self.interval is not None and step % self.interval == 0)

    async def send(self, step: int, own: Sequence[Tensor]) -> None:
        """Send this rank's *own* weights to rank 0; on rank 0, receive those of all other ranks."""
        holders = {place: sorted(self.ranks[i] for i in found) for place, found in self.plan.holders().items()}
        mine = [place for place, found in holders.items() if self.node.rank in found]
        held = dict(zip(mine, own, strict=True))
        # A parameter that several ranks share is equal on all of them, so any part will do.
        tag = f"weights/{step}"
        await gather(self.node, self.replica, held, holders.__getitem__, tag, lambda _, parts: parts[-1])
        if self.before:
            await self._send_statistics(f"statistics/{step}")

    async def _send_statistics(self, tag: str) -> None:
        """Send the running statistics to rank 0.

        A layer's statistics change only on the rank that holds the layer, so rank 0 keeps those
        that changed.
        """
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
        """Run a rank without a stage. Rank 0 receives the weights; any other rank ends at once."""
        if self.node.rank == 0:
            async for step, _ in steps(self.replica, joined=True, places=[]):
                if self.is_due(step):
                    await self.send(step, [])
                    self.node.record(step=step)
