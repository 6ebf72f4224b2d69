"""K-sync and K-batch-sync: the server takes the first K gradients of a step, and the rest of the work is cancelled.

Dutta et al. 2018 (AISTATS), section 2. In K-sync every rank computes one gradient at the step's weights and the first K
of P make the step; in K-batch-sync a rank that is done computes another one, and the first K gradients make the step,
whosever they are. Either way all begin the next step together, with its weights. K-sync with K = P is the synchronous
parameter server. Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gradient import Gradient
from simcluster.algorithms.parameter_server.facts import k_sync_copies, k_sync_world
from simcluster.algorithms.parameter_server.server import SERVER, Replies, endless, mean, most_of, trainers, unless_told
from simcluster.algorithms.parameter_server.serving import Listener
from simcluster.errors import PeerLost
from simcluster.payload import Message, pack
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica


@Facts(
    copies=k_sync_copies,
    world=k_sync_world,
    exact=lambda settings: settings.get("k") is None and not settings.get("batch"),
    spares="workers",
)
async def k_sync(
    node: Transport, replica: Replica, *, k: PositiveInt | None = None, batch: bool = False, server_trains: bool = True
) -> None:
    """One step of the server's optimizer for every *k* gradients; as many steps as a rank has batches.

    *k*: None is P. *batch*: false is K-sync; true is K-batch-sync, for which *k* may be any number. *server_trains*:
    false for a server that only serves. A gradient behind the K-th is rejected. The run goes on without ranks that are
    lost; where fewer than K are left, a step of K-sync takes one of each. Who comes back takes part again. A rank that
    has used up its batches begins them again.
    """
    ranks = trainers(node.size, server_trains)
    needed = k if batch and k is not None else most_of(ranks, "k", k)
    loose = batch or needed < len(ranks)  # ranks may be at different steps
    if node.rank != SERVER:
        await _work(node, replica, batch, loose)
        return
    async with asyncio.TaskGroup() as group:
        replies = Replies(node, group, "weights")
        await _serve(node, replica, group, replies, needed, batch, server_trains, loose)


async def _serve(
    node: Transport, replica: Replica, group: asyncio.TaskGroup, replies: Replies, k: int, batch: bool,
    server_trains: bool, loose: bool,
) -> None:  # fmt: skip
    arrived: asyncio.Queue[Gradient | PeerLost] = asyncio.Queue()
    applied, rejected, pushed = replica.restored(applied=0, rejected=0, pushed=0)
    batches = endless(replica)

    async def train(step: int) -> None:
        """The server's own worker, for one step."""
        nonlocal pushed
        for data in batches:
            loss, own = await node.compute(replica.loss_and_gradients, data, cost=replica.gradient_cost(data))
            pushed += 1
            arrived.put_nowait(Gradient(SERVER, own, step, loss, replica.ledger.hand_in(replica.ledger.drawn)))
            if not batch:
                return

    def left(first: Sequence[Gradient]) -> set[int]:
        """Who has pushed already, or still can."""
        return {*node.peers, *(push.rank for push in first), *([SERVER] if server_trains else [])}

    async def collect(step: int) -> list[Gradient]:
        """The first K gradients of *step*, or as many as there can be; those of earlier ones are rejected."""
        nonlocal rejected
        first: list[Gradient] = []
        while len(first) < (k if batch else min(k, len(left(first)))) or not first:
            listener.look()
            push = await arrived.get()
            if isinstance(push, PeerLost):
                replies.lost(push, enough=bool(left(first)))
            elif push.taken_at == step:
                first.append(push)
            else:
                rejected += 1
                if push.rank != SERVER and not replies.newer_than(push.taken_at, push.rank):
                    replies.send(push.rank, step, replica.snapshot())
        return first

    # A server that trains need not wait for a worker; one that does not has nothing else to do.
    listener = Listener(node, lambda: bool(node.peers) or not server_trains, lambda: True)
    listening = group.create_task(listener.into(arrived, replica))
    for step in range(1 + replica.at, replica.steps + 1):
        # Phase 1, compute: everybody, at the weights of this step; the first K gradients are enough.
        own = group.create_task(train(step)) if server_trains else None
        first = await collect(step)
        if own is not None:
            own.cancel()
            replica.ledger.settle(replica.ledger.drawn, used=False)  # what it had in its hands

        # Phase 2, apply: by rank, divided by the number really summed.
        first.sort(key=lambda push: push.rank)
        await node.compute(replica.apply, mean([push.tensors for push in first]), cost=replica.apply_cost())
        replica.ledger.take(push.group for push in first)
        applied += len(first)
        counts = {"applied": applied, "rejected": rejected, "pushed": pushed}
        node.record(step=step, loss=sum(push.loss for push in first) / len(first), **counts)

        # Phase 3, all go on: whoever is still at work drops it, unless older weights are still on their way there.
        for rank in node.peers:
            if not replies.under_way_to(rank):
                replies.send(rank, step + 1, replica.snapshot())
        await replica.checkpoint(step, batches=replica.ledger.drawn, loose=loose, **counts)

    # What was pushed too late for the last step is rejected, too.
    listening.cancel()
    while not arrived.empty():
        rejected += isinstance(arrived.get_nowait(), Gradient)
    rejected += await replies.see_off("push", replica)
    node.record(step=replica.steps, rejected=rejected, pushed=pushed)


async def _work(node: Transport, replica: Replica, batch: bool, loose: bool) -> None:
    step, pushed = 1 + replica.at, replica.restored(pushed=0)
    for data in endless(replica):
        # Phase 1, compute, unless the next step's weights are here first.
        work = node.compute(replica.loss_and_gradients, data, cost=replica.gradient_cost(data))
        news = await unless_told(node, "weights", work)

        # Phase 2, push; then wait, or compute another one at the same weights.
        if not isinstance(news, Message):
            loss, gradients = news
            pushed += 1
            node.record(step=step, loss=loss, pushed=pushed)
            replica.ledger.hand_in(replica.ledger.drawn)
            await node.send(SERVER, "push", pack(*gradients, step=step, loss=loss))
            if batch:
                continue
            news = await node.recv(SERVER, "weights")

        replica.ledger.settle(replica.ledger.drawn, used=False)  # what it dropped

        # Phase 3, pull. On a real device work that was dropped may still run: the weights change behind it.
        await node.compute(replica.load, news.tensors, cost=FREE)
        step = news["step"]
        await replica.checkpoint(step - 1, batches=replica.ledger.drawn, loose=loose, pushed=pushed)
        if step > replica.steps:
            return
