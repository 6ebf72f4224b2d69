"""The synchronous parameter server: workers push gradients to rank 0 and wait for each other at its barrier.

Li et al. 2014 (OSDI), section 2, with a barrier at every step. The timeout for stragglers, the pull interval and the
Polyak blend are SmolCluster's SyncPS; backup workers are those of Chen et al. 2016, section 3. Rank 0 serves and also
trains by default, so a single rank is ordinary training.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from annotated_types import Gt, Le
from pydantic import PositiveFloat, PositiveInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.parameter_server.barrier import Barrier, BatchWorker
from simcluster.algorithms.parameter_server.facts import served, sync_copies
from simcluster.algorithms.parameter_server.server import SERVER, blended, mean, most_of, trainers, unless_told
from simcluster.payload import Message
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica


@Facts(
    copies=sync_copies,
    world=served("wait_for"),
    exact=lambda settings: settings.get("wait_for") is None and settings.get("timeout_s") is None,
    spares="workers",
    evenly=lambda settings: "" if settings.get("server_trains", True) else "a server that only serves draws no batch",
    keeps_shapes=True,
    running="server",
)
async def sync_ps(
    node: Transport,
    replica: Replica,
    *,
    pull_interval: PositiveInt = 1,
    polyak: Annotated[float, Gt(0), Le(1)] = 1.0,
    timeout_s: PositiveFloat | None = None,
    wait_for: PositiveInt | None = None,
    cancel_late: bool = False,
    server_trains: bool = True,
) -> None:
    """One barrier and one step of the server's optimizer per batch.

    *pull_interval*: steps between pulls of the weights; in the others a worker takes a local step (Dean et al. 2012,
    section 4.1). *polyak*: how far a pull moves a worker's weights towards the server's; 1 replaces them. *timeout_s*:
    seconds that the server waits for gradients once it has its own; later ones are rejected, and answered with the
    current step's weights. None waits for all. *wait_for*: K, the number of gradients, the server's included, that make
    a step; N - K ranks are backups. *cancel_late*: a late worker is sent the next step's weights and drops its work.
    *server_trains*: false for a server that only serves. A step takes what the remaining ranks have; lost ones rejoin.
    """
    needed = most_of(trainers(node.size, server_trains), "wait_for", wait_for)
    loose = wait_for is not None or timeout_s is not None  # ranks may be at different steps
    if node.rank != SERVER:
        await _work(node, replica, polyak, cancel_late, loose)
        return
    async with asyncio.TaskGroup() as group:
        server = Barrier(node, replica, group, "reply", trains=server_trains, loose=loose)
        await _serve(node, replica, server, pull_interval, timeout_s, needed, cancel_late)


async def _serve(
    node: Transport, replica: Replica, server: Barrier, pull_interval: int, timeout_s: float | None, needed: int,
    cancel_late: bool,
) -> None:  # fmt: skip
    async for step in server:
        # Phase 1, compute: the server's own gradient, while the workers' arrive.
        own = await server.own()

        # Phase 2, barrier: the first K gradients of this step, or those before the timeout, at least one.
        gradients = await server.gather(own, needed, timeout_s)

        # Phase 3, reduce and apply: in rank order, weighed by the samples actually summed.
        total = mean([gradient.tensors for gradient in gradients], server.samples(gradients))
        await node.compute(replica.apply, total, cost=replica.apply_cost())

        # Phase 4, reply to those that pushed, with weights if this step pulls; tell late workers to stop.
        pull = replica.snapshot() if step % pull_interval == 0 else ()
        server.answer(gradients, pull)
        if cancel_late:
            server.call_off(gradients, pull)
        server.count(gradients)

    # A worker that missed the last step is about to push and waits for a reply, or has pushed and got one.
    await server.see_off(only_behind=not cancel_late)


async def _work(node: Transport, replica: Replica, polyak: float, cancel_late: bool, loose: bool) -> None:
    worker = BatchWorker(node, replica, replica.batches(), loose=loose)
    async for batch in worker:
        # Phase 1, compute, unless the next step's weights arrive unasked.
        work = node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        reply = await unless_told(node, "reply", work) if cancel_late else await work

        # Phase 2, push, and wait at the barrier.
        if not isinstance(reply, Message):
            loss, gradients = reply
            reply = await worker.push_and_wait("gradients", gradients, loss, "reply")

        # Phase 3, pull, or continue alone until the next pull.
        if reply.tensors:
            weights = blended(replica.parameters, reply.tensors, polyak)
            # On a real device, dropped work may still run and read the weights: load them after it.
            await node.compute(replica.load, weights, cost=FREE) if cancel_late else replica.load(weights)
        else:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        worker.step = reply["step"]
