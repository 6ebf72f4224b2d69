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

from simcluster.algorithms.facts import Facts, Settings
from simcluster.algorithms.parameter_server.barrier import Barrier, BatchWorker
from simcluster.algorithms.parameter_server.server import SERVER, blended, mean, most_of, trainers, unless_told
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, served, sync_copies
from simcluster.compression import Codec, Compression
from simcluster.payload import Message
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica


def _waits_for_all(settings: Settings) -> bool:
    return settings.get("wait_for") is None and settings.get("timeout_s") is None


@Facts(
    copies=sync_copies,
    world=served("wait_for"),
    exact=_waits_for_all,
    joins=lambda settings: _waits_for_all(settings) and settings.get("pull_interval", 1) == 1,
    spares="workers",
    evenly=drawn_by_all,
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
    compression: Compression = "none",
) -> None:
    """Train with one barrier and one step of the server's optimizer per batch.

    *pull_interval*: the number of steps from one pull of the weights to the next; at every other
    step a worker takes a local step (Dean et al. 2012, section 4.1). *polyak*: the fraction of the
    way that a pull moves a worker's weights towards the server's; 1 replaces them. *timeout_s*: the
    number of seconds for which the server waits for gradients once it has its own; None waits for
    all. Later gradients are rejected and answered with the current step's weights. *wait_for*: K,
    the number of gradients that make a step, including the server's; None is N, all training ranks.
    The other N - K ranks are backups. *cancel_late*: whether a late worker is sent the next step's
    weights and drops its work. *server_trains*: whether the server also trains.
    *compression*: the compression of the gradients that workers push; weights travel whole. When
    ranks are lost, a step takes the gradients of the others; lost ranks may rejoin.
    """
    needed = most_of(trainers(node.size, server_trains), "wait_for", wait_for)
    loose = wait_for is not None or timeout_s is not None  # whether ranks may be at different steps
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank != SERVER:
        await _work(node, replica, polyak, cancel_late, loose, codec)
        return
    async with asyncio.TaskGroup() as group:
        server = Barrier(node, replica, group, trains=server_trains, loose=loose)
        await _serve(node, replica, server, pull_interval, timeout_s, needed, cancel_late, codec)


async def _serve(
    node: Transport, replica: Replica, server: Barrier, pull_interval: int, timeout_s: float | None, needed: int,
    cancel_late: bool, codec: Codec,
) -> None:  # fmt: skip
    async for step in server:
        # Phase 1, compute: the server's own gradient, while the workers' arrive.
        own = await server.own()

        # Phase 2, barrier: the first K gradients of this step, or those before the timeout, at least one.
        gradients = await server.gather(own, needed, timeout_s)

        # Phase 3, reduce and apply: in rank order, weighted by the samples actually summed.
        parts = [
            gradient.tensors if gradient.rank == SERVER else await codec.restore(node, gradient.tensors)
            for gradient in gradients
        ]
        total = mean(parts, server.samples(gradients))
        await node.compute(replica.apply, total, cost=replica.apply_cost())

        # Phase 4, reply to those that pushed, with weights if this step pulls; tell late workers to stop.
        pull = replica.snapshot() if step % pull_interval == 0 else ()
        server.answer(gradients, pull)
        if cancel_late:
            server.call_off(gradients, pull)
        server.count(gradients)

    # A worker that missed the last step either has pushed and got a reply, or is about to push and
    # needs one.
    await server.see_off(only_behind=not cancel_late)


async def _work(node: Transport, replica: Replica, polyak: float, cancel_late: bool, loose: bool, codec: Codec) -> None:
    worker = BatchWorker(node, replica, replica.batches(), loose=loose, codec=codec)
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
            # On a real device, dropped work may still be running and read the weights: load new
            # weights after it.
            await node.compute(replica.load, weights, cost=FREE) if cancel_late else replica.load(weights)
        else:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        worker.step = reply["step"]
