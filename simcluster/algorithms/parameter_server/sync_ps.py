"""The synchronous parameter server: workers push gradients to rank 0 and wait there for each other.

Li et al. 2014 (OSDI), section 2, with a barrier every step; the time-out for stragglers, the pull interval and the
Polyak blend are SmolCluster's SyncPS, backup workers those of Chen et al. 2016, section 3. Rank 0 serves, and trains as
well unless told not to, so one rank alone is ordinary training.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from annotated_types import Gt, Le
from pydantic import PositiveFloat, PositiveInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gradient import Gradient
from simcluster.algorithms.parameter_server.facts import served, sync_copies
from simcluster.algorithms.parameter_server.server import SERVER, Replies, blended, mean, most_of, trainers, unless_told
from simcluster.errors import PeerLost
from simcluster.hearing import arrival, heard
from simcluster.payload import Message, pack
from simcluster.transport import ANY, FREE, Transport
from simcluster.workloads import Replica


@Facts(
    copies=sync_copies,
    world=served("wait_for"),
    exact=lambda settings: settings.get("wait_for") is None and settings.get("timeout_s") is None,
    spares="workers",
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

    *pull_interval*: workers fetch weights every so many steps; on the others they take their own gradient's step
    (Dean et al. 2012, section 4.1). *polyak*: a pull moves a worker's weights this far towards the server's; 1 replaces
    them. *timeout_s*: seconds that the server waits for gradients once it has its own; those that come later are
    rejected, and their workers are sent the weights of the step under way. None waits for everyone. *wait_for*: K, the
    first of N gradients, the server's own among them, that make a step; N - K ranks are the backup. *cancel_late*:
    whoever is late for a step is sent the weights of the next, and drops the work in its hands. *server_trains*: false
    for a server that only serves. Where fewer are left, a step takes what those have; who comes back takes part again.
    """
    ranks = trainers(node.size, server_trains)
    needed = most_of(ranks, "wait_for", wait_for)
    loose = wait_for is not None or timeout_s is not None  # ranks may be at different steps
    if node.rank != SERVER:
        await _work(node, replica, polyak, cancel_late, loose)
        return
    async with asyncio.TaskGroup() as group:
        replies = Replies(node, group, "reply")
        await _serve(node, replica, replies, pull_interval, timeout_s, needed, cancel_late, server_trains, loose)


async def _serve(
    node: Transport, replica: Replica, replies: Replies, pull_interval: int, timeout_s: float | None, needed: int,
    cancel_late: bool, server_trains: bool, loose: bool,
) -> None:  # fmt: skip
    on_time: dict[int, Gradient] = {}
    applied, rejected = replica.restored(applied=0, rejected=0)
    batches = replica.batches()

    def take(arrived: Message | PeerLost, step: int) -> None:
        """Keep a gradient of *step*, reject an older one; bear a loss while any are left that train."""
        nonlocal rejected
        if isinstance(arrived, PeerLost):
            replies.lost(arrived, enough=bool(on_time or node.peers))
        elif arrived["step"] == step:
            on_time[arrived.source] = Gradient.received(arrived, step, replica)
        else:
            rejected += 1
            replica.ledger.receive(arrived)
            if not replies.newer_than(arrived["step"], arrived.source):
                replies.send(arrived.source, step, replica.snapshot())

    async def collect(step: int, least: int) -> None:
        """Receive until *least* ranks, or all that are left, have a gradient of *step*."""
        if not node.peers and (back := await heard(node, ANY, "gradients")) is not None:
            take(back, step)
        while len(on_time) < max(min(least, len({*on_time, *node.peers})), 1):
            take(await arrival(node, ANY, "gradients"), step)

    for step in range(1 + replica.at, replica.steps + 1):
        # Phase 1, compute: the server's own gradient, while the workers' arrive.
        on_time, before = {}, rejected
        if server_trains:
            batch = next(batches)
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            on_time[SERVER] = Gradient(SERVER, own, step, loss, replica.ledger.hand_in(step))

        # Phase 2, barrier: the first K gradients of this step, or those in time, of which there is one at least.
        try:
            async with asyncio.timeout(timeout_s):
                await collect(step, needed)
        except TimeoutError:
            await collect(step, 1)

        # Phase 3, reduce and apply: by rank, divided by the number really summed.
        summed = [on_time[rank] for rank in sorted(on_time)]
        total = mean([gradient.tensors for gradient in summed])
        await node.compute(replica.apply, total, cost=replica.apply_cost())
        replica.ledger.take(gradient.group for gradient in summed)

        # Phase 4, reply to those that waited, with weights if it is a step to pull on; tell those who are late to stop.
        pull = replica.snapshot() if step % pull_interval == 0 else ()
        for rank in sorted(on_time.keys() - {SERVER}):
            replies.send(rank, step + 1, pull)
        for rank in node.peers if cancel_late else ():
            if rank not in on_time and not replies.under_way_to(rank):
                replies.send(rank, step + 1, pull or replica.snapshot())

        loss = sum(gradient.loss for gradient in summed) / len(summed)
        applied += len(summed)
        counts = {"late": rejected - before, "applied": applied, "rejected": rejected, "pushed": step * server_trains}
        node.record(step=step, loss=loss, contributions=len(summed), **counts)
        await replica.checkpoint(step, loose=loose, applied=applied, rejected=rejected)

    # Whoever missed the last step is about to push, and waits for a reply; or has pushed, and was told since.
    rejected += await replies.see_off("gradients", replica, only_behind=not cancel_late)
    node.record(step=replica.steps, rejected=rejected)


async def _work(node: Transport, replica: Replica, polyak: float, cancel_late: bool, loose: bool) -> None:
    step, pushed = 1 + replica.at, replica.restored(pushed=0)
    for batch in replica.batches():
        # Phase 1, compute, unless the next step's weights come unasked.
        work = node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        reply = await unless_told(node, "reply", work) if cancel_late else await work

        # Phase 2, push, and wait at the barrier.
        if not isinstance(reply, Message):
            loss, gradients = reply
            pushed += 1
            node.record(step=step, loss=loss, pushed=pushed)
            replica.ledger.hand_in(replica.ledger.drawn)
            await node.send(SERVER, "gradients", pack(*gradients, step=step, loss=loss))
            reply = await node.recv(SERVER, "reply")

        # Phase 3, pull, or go on alone until the next pull.
        if reply.tensors:
            weights = blended(replica.parameters, reply.tensors, polyak)
            # On a real device work that was dropped may still run, and read the weights: they change behind it.
            await node.compute(replica.load, weights, cost=FREE) if cancel_late else replica.load(weights)
        else:
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        step, drawn = reply["step"], replica.ledger.drawn
        replica.ledger.settle(drawn, used=False)  # what it dropped
        await replica.checkpoint(step - 1, batches=drawn, loose=loose, pushed=pushed)
        if step > replica.steps:
            break
