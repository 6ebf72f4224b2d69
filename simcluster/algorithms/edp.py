"""The asynchronous parameter server: nobody waits for anybody, and the server's rules deal with stale gradients.

Downpour SGD (Dean et al. 2012, section 4.1), which SmolCluster calls EDP, elastic distributed parallelism. Staleness
is the number of updates that the server made between a worker's download of the weights and the arrival of the gradient
taken there (Zhang, Gupta, Lian and Liu 2016, section 2). Rank 0 serves and trains as well.

This file knows the server's and the workers' halves of one protocol. It must not know a backend, a file or a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica

SERVER = 0


async def edp(
    node: Transport,
    replica: Replica,
    *,
    pull_interval: PositiveInt = 1,
    max_staleness: NonNegativeInt | None = None,
    damping: Literal["none", "inverse"] = "none",
) -> None:
    """Every batch is a push; every *pull_interval*-th push asks for the server's weights.

    Between pulls a worker takes its own gradient's step. *max_staleness*: the server rejects gradients staler than
    this; None takes all. *damping*: `inverse` divides a gradient by its staleness, if that is above 1 (Zhang et al.
    2016, section 3). A worker that is lost leaves the others to go on, and is welcome if it comes back before they end.
    """
    if node.rank == SERVER:
        await _serve(node, replica, max_staleness, damping)
    else:
        await _work(node, replica, pull_interval)


async def _serve(node: Transport, replica: Replica, max_staleness: int | None, damping: str) -> None:
    version = rejected = 0
    updating = asyncio.Lock()

    async def update(gradients: Sequence[Tensor], taken_at: int, loss: float) -> None:
        """One push: judged, applied to the newest weights, recorded."""
        nonlocal version, rejected
        staleness = version - taken_at
        if max_staleness is not None and staleness > max_staleness:
            rejected += 1
            node.record(step=version, staleness=staleness, rejected=rejected)
            return
        if damping == "inverse" and staleness > 1:
            gradients = [gradient / staleness for gradient in gradients]
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        version += 1
        node.record(step=version, loss=loss, staleness=staleness)

    async def train() -> None:
        """The server's own gradients go through the same rules as everyone's."""
        for batch in replica.batches():
            taken_at = version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            async with updating:
                await update(own, taken_at, loss)

    to_come = {rank: replica.steps for rank in range(node.size) if rank != SERVER}
    async with asyncio.TaskGroup() as group:
        group.create_task(train())
        while sum(to_come.values()):
            # Push: in order of arrival, which is what asynchronous means.
            try:
                push = await node.recv(ANY, "push")
            except PeerLost:
                # All that came is taken; whoever is gone, also well and therefore not told one by one, pushes no more.
                to_come = {rank: left for rank, left in to_come.items() if rank in node.peers}
                continue
            async with updating:
                await update(push.tensors, push["version"], push["loss"])
                # Pull: the weights as they are now, sent while the next push is judged.
                if push["pull"]:
                    reply = pack(*replica.snapshot(), version=version)
                    group.create_task(_reply(node, push.source, reply))
            if push.source not in to_come:  # it was lost, and has come back: it begins from the beginning
                to_come[push.source] = replica.steps
            to_come[push.source] -= 1


async def _reply(node: Transport, worker: int, reply: object) -> None:
    try:
        await node.send(worker, "weights", reply)  # type: ignore[arg-type]
    except PeerLost:
        return  # told to recv as well, where it is counted


async def _work(node: Transport, replica: Replica, pull_interval: int) -> None:
    version = 0
    for step, batch in enumerate(replica.batches(), start=1):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss)

        # Phase 2, push: the gradient and the version of the weights that it was taken at.
        pull = step % pull_interval == 0
        await node.send(SERVER, "push", pack(*gradients, version=version, loss=loss, pull=pull))

        # Phase 3, pull, or go on alone until the next pull.
        if pull:
            message = await node.recv(SERVER, "weights")
            replica.load(message.tensors)
            version = message["version"]
        else:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
