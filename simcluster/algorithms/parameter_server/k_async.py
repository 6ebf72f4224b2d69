"""K-async and K-batch-async: the server updates on the first K gradients, and nobody's work is thrown away.

Dutta et al. 2018 (AISTATS), section 2. K-async gathers from K different ranks; those wait for the update, the others
go on with what they had, so their gradients are stale when they come. K-batch-async gathers any K gradients, and every
rank goes on at once with the weights as they are. K = 1 is the asynchronous parameter server; K-async with K = P, all
that train, is the synchronous one. Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from pydantic import PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.parameter_server.facts import served, stale_copies
from simcluster.algorithms.parameter_server.server import SERVER, Expected, keep, mean, most_of, trainers
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Group, Replica


class Gradient(NamedTuple):
    """One rank's gradient, the version of the weights that it was taken at, its batches in the ledger, and how its rank
    is told of new weights.
    """

    rank: int
    tensors: Sequence[Tensor]
    taken_at: int
    loss: float
    group: Group
    answer: Callable[[], object]


@Facts(
    copies=stale_copies,
    world=served("k"),
    exact=lambda settings: settings.get("k") is None and not settings.get("batch"),
    spares="workers",
)
async def k_async(
    node: Transport, replica: Replica, *, k: PositiveInt | None = None, batch: bool = False, server_trains: bool = True
) -> None:
    """Every batch is a push, *k* pushes are an update: of the mean, at the weights as they are by then.

    *k*: None is P. *batch*: false is K-async, true K-batch-async. *server_trains*: false for a server that only serves.
    Where fewer than *k* are left that train, by the end of their batches or because they are lost, an update takes what
    those have.
    """
    ranks = trainers(node.size, server_trains)
    if node.rank == SERVER:
        await _serve(node, replica, ranks, most_of(ranks, "k", k), batch)
    else:
        await _work(node, replica, loose=batch or most_of(ranks, "k", k) < len(ranks))


async def _serve(node: Transport, replica: Replica, ranks: Sequence[int], k: int, batch: bool) -> None:
    version, applied = replica.restored(version=0, applied=0)
    loose, updating = batch or k < len(ranks), asyncio.Lock()  # loose: ranks may be at different steps
    pending: list[Gradient] = []
    left = {rank: replica.steps - replica.done_by(rank) for rank in ranks}
    expected = Expected(node, left, replica.steps)

    async def update() -> None:
        """One step with the mean of what is there: by rank, divided by the number really summed."""
        nonlocal version, applied
        gradients = sorted(pending, key=lambda gradient: gradient.rank)
        pending.clear()
        total = mean([gradient.tensors for gradient in gradients])
        await node.compute(replica.apply, total, cost=replica.apply_cost())
        replica.ledger.take(gradient.group for gradient in gradients)
        version += 1
        applied += len(gradients)
        for gradient in gradients:
            staleness = version - 1 - gradient.taken_at
            node.record(step=version, loss=gradient.loss, staleness=staleness, applied=applied)
            if not batch:
                gradient.answer()
        await keep(replica, applied, len(ranks), at=None if loose else version, version=version, applied=applied)

    async def update_if_due() -> None:
        """When there are K; when nobody is left to come; of K-async, when all who are there wait."""
        left = expected.left()
        waiting = {gradient.rank for gradient in pending}
        if pending and (len(pending) == k or (not left if batch else left <= waiting)):
            await update()

    async def take(gradient: Gradient) -> None:
        pending.append(gradient)
        expected.came(gradient.rank)
        await update_if_due()
        if batch:
            gradient.answer()

    async def train() -> None:
        """The server's own gradients go through the same rules as everyone's."""
        for step, data in enumerate(replica.batches(), start=1 + replica.done):
            taken_at, answered = version, asyncio.Event()
            loss, own = await node.compute(replica.loss_and_gradients, data, cost=replica.gradient_cost(data))
            node.record(step=version, pushed=step)
            async with updating:
                await take(Gradient(SERVER, own, taken_at, loss, replica.ledger.hand_in(step), answered.set))
            expected.look()
            await answered.wait()

    async with asyncio.TaskGroup() as tasks:

        def answer(worker: int, taken_at: int) -> None:
            weights = replica.snapshot() if version > taken_at else ()
            tasks.create_task(expected.reply(worker, "weights", pack(*weights, version=version)))

        if SERVER in ranks:
            expected.train(tasks, train())
        while (push := await expected.next()) is not None:
            # Push: in order of arrival.
            if isinstance(push, PeerLost):
                async with updating:
                    expected.lost(push)
                    # One that comes back asks again: its old self is not answered, what that had pushed counts.
                    pending[:] = [one._replace(answer=int) if one.rank == push.rank else one for one in pending]
                    await update_if_due()
                continue
            reply = partial(answer, push.source, push["version"])
            async with updating:
                group = replica.ledger.receive(push)
                await take(Gradient(push.source, push.tensors, push["version"], push["loss"], group, reply))


async def _work(node: Transport, replica: Replica, *, loose: bool) -> None:
    version = replica.restored(version=0)
    for step, data in enumerate(replica.batches(), start=1 + replica.done):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, data, cost=replica.gradient_cost(data))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push.
        replica.ledger.hand_in(step)
        await node.send(SERVER, "push", pack(*gradients, version=version, loss=loss))

        # Phase 3, pull: at once, or when K have pushed.
        message = await node.recv(SERVER, "weights")
        if message.tensors:
            replica.load(message.tensors)
        version = message["version"]
        await replica.checkpoint(step, loose=loose, version=version)
