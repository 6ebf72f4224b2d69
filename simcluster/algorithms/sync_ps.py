"""The synchronous parameter server: workers push gradients to rank 0 and wait there for each other.

Li et al. 2014 (OSDI), section 2, with a barrier every step; the time-out for stragglers, the pull interval and the
Polyak blend are SmolCluster's SyncPS. Rank 0 serves and trains as well, so one rank alone is ordinary training.

This file knows the server's and the workers' halves of one protocol: each push of a gradient gets exactly one reply.
It must not know a backend, a file or a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from annotated_types import Gt, Le
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.payload import Message, pack
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica

SERVER = 0


async def sync_ps(
    node: Transport,
    replica: Replica,
    *,
    pull_interval: PositiveInt = 1,
    polyak: Annotated[float, Gt(0), Le(1)] = 1.0,
    timeout_s: PositiveFloat | None = None,
) -> None:
    """One barrier and one step of the server's optimizer per batch.

    *pull_interval*: workers fetch weights every so many steps; on the others they take their own gradient's step
    (Dean et al. 2012, section 4.1). *polyak*: a pull moves a worker's weights this far towards the server's; 1 replaces
    them. *timeout_s*: seconds that the server waits for gradients once it has its own; those that come later are
    rejected, and their workers are sent the weights of the step under way. None waits for everyone.
    """
    if node.rank == SERVER:
        await _serve(node, replica, pull_interval, timeout_s)
    else:
        await _work(node, replica, polyak)


async def _serve(node: Transport, replica: Replica, pull_interval: int, timeout_s: float | None) -> None:
    workers = [rank for rank in range(node.size) if rank != SERVER]
    on_time: dict[int, Message] = {}

    # A reply leaves while the server goes on: a slow link holds up its own worker only.
    async with asyncio.TaskGroup() as replies:
        for step, batch in enumerate(replica.batches(), start=1):
            # Phase 1, compute: the server's own gradient, while the workers' arrive.
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

            # Phase 2, barrier: a gradient of this step from every worker, or from those in time.
            on_time, late = {}, 0
            try:
                async with asyncio.timeout(timeout_s):
                    while len(on_time) < len(workers):
                        push = await node.recv(ANY, "gradients")
                        if push["step"] == step:
                            on_time[push.source] = push
                        else:
                            late += 1
                            fresh = pack(*replica.snapshot(), step=step)
                            replies.create_task(node.send(push.source, "reply", fresh))
            except TimeoutError:
                pass

            # Phase 3, reduce and apply: by rank, divided by the number really summed.
            pushes = [on_time[rank] for rank in sorted(on_time)]
            mean = _mean([own, *(push.tensors for push in pushes)])
            await node.compute(replica.apply, mean, cost=replica.apply_cost())

            # Phase 4, reply to those that waited: with weights, if this is a step to pull on.
            reply = pack(*(replica.snapshot() if step % pull_interval == 0 else ()), step=step + 1)
            for push in pushes:
                replies.create_task(node.send(push.source, "reply", reply))
            losses = [loss, *(push["loss"] for push in pushes)]
            node.record(step=step, loss=sum(losses) / len(losses), contributions=len(losses), late=late)

        # Whoever missed the last step is about to push, and still waits for a reply.
        for rank in workers:
            if rank not in on_time:
                await node.recv(rank, "gradients")
                final = pack(*replica.snapshot(), step=replica.steps + 1)
                replies.create_task(node.send(rank, "reply", final))


async def _work(node: Transport, replica: Replica, polyak: float) -> None:
    step = 1
    for batch in replica.batches():
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss)

        # Phase 2, push, and wait at the barrier.
        await node.send(SERVER, "gradients", pack(*gradients, step=step, loss=loss))
        reply = await node.recv(SERVER, "reply")

        # Phase 3, pull, or go on alone until the next pull.
        if reply.tensors:
            replica.load(_blend(replica.parameters, reply.tensors, polyak))
        else:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        step = reply["step"]
        if step > replica.steps:
            break


def _mean(contributions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The mean of each gradient over *contributions*, summed in the order given; the first one is overwritten."""
    total = list(contributions[0])
    for gradients in contributions[1:]:
        for into, gradient in zip(total, gradients, strict=True):
            into.add_(gradient)
    return [tensor.div_(len(contributions)) for tensor in total]


def _blend(own: Sequence[Tensor], server: Sequence[Tensor], polyak: float) -> list[Tensor]:
    """(1 - polyak) own + polyak server, tensor by tensor."""
    if polyak == 1:
        return list(server)
    return [mine.lerp(theirs, polyak) for mine, theirs in zip(own, server, strict=True)]
