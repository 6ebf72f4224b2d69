"""Data parallelism by all-reduce: every rank keeps a whole replica and they average gradients, step by step.

This is what SmolCluster calls ClassicDP, and what Goyal et al. 2017 (section 2) analyse: with equal batches the mean of
the ranks' gradients is the gradient of the joined batch, so N ranks take the steps that one process would take. Buckets
and accumulation are those of Li et al. 2020 (PyTorch Distributed, sections 3.2.3 and 3.2.4); the bound on staleness is
that of pipelined SGD (Li et al. 2018, Pipe-SGD, section 3).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.algorithms.data_parallel.buckets import cut_into_buckets, mean_gradient
from simcluster.algorithms.declared import in_step
from simcluster.collectives import all_reduce, broadcast
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica


@dataclass
class Step:
    """A step whose means are still to come: one task a bucket."""

    batches: int
    loss: float
    lead: int
    reducing: list[asyncio.Future[list[Tensor]]]

    async def arrived(self) -> list[Any]:
        """All of it, when the means are there."""
        return [self.batches, self.loss, self.lead, [await mean for mean in self.reducing]]


@in_step
async def all_reduce_dp(
    node: Transport,
    replica: Replica,
    *,
    schedule: Literal["ring", "naive", "direct", "binomial", "recursive_doubling", "halving_doubling"] = "ring",
    initial_weights: Literal["seed", "broadcast"] = "seed",
    compression: Compression = "none",
    bucket_bytes: PositiveInt | None = None,
    accumulate: PositiveInt = 1,
    staleness: NonNegativeInt = 0,
) -> None:
    """One gradient, one all-reduce and one step of the optimizer per batch.

    *schedule*: of the all-reduce. `ring` sends the fewest bytes, 2 (N-1)/N of the gradient's per rank and step, in
    2 (N-1) rounds; `direct` as few in 2 rounds, all at once; `naive` N-1 times the gradient in one; the others take
    about 2 lg N rounds. *initial_weights*: `seed` trusts that every rank drew the same weights from the common seed;
    `broadcast` sends rank 0's to all. Without either, replicas would average gradients of different points.
    *compression*: what travels in place of gradients; other than `none` it has its own way among ranks, and only
    power_sgd still uses *schedule*. *bucket_bytes*: gradients leave in buckets of at least so many bytes, those of the
    last layers while those before are still computed; null sends all at the end. *accumulate*: so many batches a step;
    the mean of their gradients is sent. *staleness*: a gradient is taken at weights that lack so many of the last
    updates, always exactly as many, so a rank may be that many steps ahead of the slowest, and yet who was fast changes
    no bit. Its *lead* is recorded: all-reduces that it has joined and somebody else has not.
    """
    buckets = cut_into_buckets(replica, bucket_bytes)
    by_schedule = partial(all_reduce, schedule=schedule)
    means = [
        Mean(compression, node, f"gradients/{number}", [replica.parameters[place] for place in places], by_schedule)
        for number, places in enumerate(bucket.places for bucket in buckets)
    ]

    # Phase 1, agree: all replicas start from the same weights.
    if initial_weights == "broadcast":
        replica.load(await broadcast(node, replica.parameters, "initial weights"))

    means, kept = replica.restored(means=means, under_way=[])
    under_way = deque(map(_again, kept))
    batches, leads = replica.batches(), list[int]()

    async def update() -> int:
        # Phase 4, apply: the mean, the same bits everywhere, in the order of steps, so the replicas never part.
        step = under_way.popleft()
        mean: dict[int, Tensor] = {}
        for bucket, reducing in zip(buckets, step.reducing, strict=True):
            mean |= zip(bucket.places, await reducing, strict=True)
        await node.compute(replica.apply, [mean[place] for place in sorted(mean)], cost=replica.apply_cost())
        node.record(step=step.batches, loss=step.loss, **({"lead": step.lead} if staleness else {}))
        return step.batches

    async with asyncio.TaskGroup() as reductions:
        for number in range(1 + replica.done // accumulate, -(-replica.steps // accumulate) + 1):
            leads.append(sum(not all(task.done() for task in earlier.reducing) for earlier in under_way))
            reducing: list[asyncio.Future[list[Tensor]]] = []

            def leave(bucket: int, gradients: list[Tensor], number: int = number, into: list[Any] = reducing) -> None:
                # Phase 3, reduce: the mean over ranks, while the device goes on with what is left of phase 2.
                tag = f"gradients/{number}" + (f"/{bucket}" if len(buckets) > 1 else "")
                into.append(reductions.create_task(means[bucket](gradients, tag)))

            # Phase 2, compute: the mean gradient of this rank's batches, at weights that lack *staleness* updates.
            loss = await mean_gradient(node, replica, list(islice(batches, accumulate)), buckets, leave)
            done = min(number * accumulate, replica.steps)
            under_way.append(Step(done, loss, leads[-1], reducing))
            landed = await update() if len(under_way) > staleness else 0
            kept = [await step.arrived() for step in under_way] if replica.is_due(done) else []
            await replica.checkpoint(done, landed=landed, apart=staleness, means=means, under_way=kept)
        while under_way:
            await update()
    if staleness:
        node.record(step=replica.steps, lead_mean=sum(leads) / len(leads), lead_max=max(leads))


def _again(arrived: list[Any]) -> Step:
    """A step whose means were there when the run was kept."""
    batches, loss, lead, means = arrived
    reducing = [asyncio.get_running_loop().create_future() for _ in means]
    for future, mean in zip(reducing, means, strict=True):
        future.set_result(mean)
    return Step(batches, loss, lead, reducing)
