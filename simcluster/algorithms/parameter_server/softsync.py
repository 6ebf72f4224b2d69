"""n-softsync: an asynchronous parameter server that gathers lambda/n gradients, whosever they are, for each update.

Zhang, Gupta, Lian and Liu 2016 (IJCAI), section 2, with the staleness-aware learning rate of section 3. Of lambda
ranks that train, n = 1 gathers as many gradients for an update as a synchronous server, but waits for no one in
particular; n = lambda is the asynchronous server. With one gradient in flight on each rank the mean staleness is
(lambda - 1)/K for K = lambda/n, which is n, nearly. Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.gradient import Gradient
from simcluster.algorithms.parameter_server.facts import served, stale_copies
from simcluster.algorithms.parameter_server.server import SERVER, Expected, keep, mean, most_of, trainers
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=stale_copies, world=served("n"), exact=never)
async def softsync(
    node: Transport,
    replica: Replica,
    *,
    n: PositiveInt = 1,
    damping: Literal["none", "inverse"] = "none",
    server_trains: bool = True,
) -> None:
    """Every batch is a push, answered at once: with the weights, if there are newer ones.

    *n*: the splitting parameter; an update takes K = lambda // n gradients, those left at the end one with fewer.
    *damping*: `inverse` divides each gradient by its staleness, if that is above 1. *server_trains*: false for a server
    that only serves. A worker that is lost leaves the others to go on, with K as it was.
    """
    ranks = trainers(node.size, server_trains)
    gathered = len(ranks) // most_of(ranks, "n", n)
    if node.rank == SERVER:
        await _serve(node, replica, ranks, gathered, damping)
    else:
        await _work(node, replica)


async def _serve(node: Transport, replica: Replica, ranks: Sequence[int], gathered: int, damping: str) -> None:
    version, applied = replica.restored(version=0, applied=0)
    pending: list[Gradient] = []
    updating = asyncio.Lock()

    async def update() -> None:
        """Phase 3: one step with the mean of what is there; by rank, divided by the number really summed."""
        nonlocal version, applied
        pending.sort(key=lambda gradient: gradient.rank)
        stale = [max(version - gradient.taken_at, 0) for gradient in pending]
        divisors = [max(1, staleness) if damping == "inverse" else 1 for staleness in stale]
        parts = [
            gradient.tensors if divisor == 1 else [tensor / divisor for tensor in gradient.tensors]
            for gradient, divisor in zip(pending, divisors, strict=True)
        ]
        await node.compute(replica.apply, mean(parts), cost=replica.apply_cost())
        replica.ledger.take(gradient.group for gradient in pending)
        version += 1
        applied += len(pending)
        for gradient, staleness in zip(pending, stale, strict=True):
            node.record(step=version, loss=gradient.loss, staleness=staleness, applied=applied)
        pending.clear()
        await keep(replica, applied, len(ranks), version=version, applied=applied)

    async def take(gradient: Gradient) -> None:
        pending.append(gradient)
        if len(pending) == gathered:
            await update()

    async def train() -> None:
        """The server's own gradients go through the same rules as everyone's."""
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            taken_at = version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            node.record(step=version, pushed=step)
            async with updating:
                await take(Gradient(SERVER, own, taken_at, loss, replica.ledger.hand_in(step)))
            expected.look()

    left = {rank: replica.steps - replica.done_by(rank) for rank in ranks if rank != SERVER}
    expected = Expected(node, left, replica.steps)
    async with asyncio.TaskGroup() as tasks:
        if SERVER in ranks:
            expected.train(tasks, train())
        while (push := await expected.next()) is not None:
            # Push: in order of arrival.
            if isinstance(push, PeerLost):
                expected.lost(push)
                continue
            async with updating:
                await take(Gradient.received(push, push["version"], replica))
                # Pull: the weights, if they are others than those that the gradient was taken at.
                weights = replica.snapshot() if version > push["version"] else ()
                tasks.create_task(expected.reply(push.source, "weights", pack(*weights, version=version)))
            expected.came(push.source)
    if pending:
        await update()


async def _work(node: Transport, replica: Replica) -> None:
    version = replica.restored(version=0)
    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push and pull.
        replica.ledger.hand_in(step)
        await node.send(SERVER, "push", pack(*gradients, version=version, loss=loss))
        message = await node.recv(SERVER, "weights")
        if message.tensors:
            replica.load(message.tensors)
        version = message["version"]
        await replica.checkpoint(step, loose=True, version=version)
