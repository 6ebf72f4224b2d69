"""Stale-synchronous parallel: fast workers run ahead of the slowest, by a bounded number of clocks and no further.

Ho et al. 2013 (NIPS), section 2. A worker's clock c counts the gradients that it has pushed. It may read the weights,
and begin the next one, while c - min c <= s; so the fastest leads the slowest by s + 1 clocks at most, always. With
s = 0 all wait for all, which is the synchronous parameter server; with s infinite nobody waits, the asynchronous one.
Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import NonNegativeInt

from simcluster.algorithms.clocks import Clocks
from simcluster.algorithms.facts import Facts
from simcluster.algorithms.gradient import Gradient
from simcluster.algorithms.parameter_server.facts import served, stale_copies
from simcluster.algorithms.parameter_server.server import SERVER, keep, mean, reply_to, trainers
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=stale_copies, world=served(), exact=lambda settings: settings.get("staleness") == 0, spares="workers")
async def ssp(
    node: Transport, replica: Replica, *, staleness: NonNegativeInt | None = 3, server_trains: bool = True
) -> None:
    """Every batch is a clock: a push, and a read that is answered when the bound allows.

    *staleness*: the bound s; None is infinite. *server_trains*: false for a server that only serves. What was pushed is
    applied when somebody reads: as one step, of the mean over what has come since. The clock of a worker that is lost
    holds nobody up; one that comes late, or back, starts at the slowest one's clock.
    """
    ranks = trainers(node.size, server_trains)
    if node.rank == SERVER:
        await _serve(node, replica, ranks, staleness)
    else:
        await _work(node, replica, loose=staleness != 0)


async def _serve(node: Transport, replica: Replica, ranks: Sequence[int], s: int | None) -> None:
    version, applied = replica.restored(version=0, applied=0)
    clocks = Clocks(node, replica, ranks, s)
    unread: list[Gradient] = []
    own_turn, updating = asyncio.Event(), asyncio.Lock()

    async def push(gradient: Gradient, last: bool) -> None:
        """The rank's clock moves on, and it waits to read."""
        unread.append(gradient)
        node.record(step=version, lead=clocks.tick(gradient.rank, last=last))
        await release()

    async def release() -> None:
        """Answer the ranks that the bound holds up no longer, all with the same weights."""
        while free := clocks.free():
            await fold()
            await keep(replica, applied, len(ranks), at=None if s != 0 else version, version=version, applied=applied)
            for rank in free:
                clocks.go_on(rank)
                if rank == SERVER:
                    own_turn.set()
                else:
                    tasks.create_task(reply_to(node, rank, "weights", pack(*replica.snapshot(), version=version)))

    async def fold() -> None:
        """Take one step with the mean of what is unread: by rank, divided by the number really summed."""
        nonlocal version, applied
        gradients = sorted(unread, key=lambda gradient: gradient.rank)
        if not gradients:
            return
        unread.clear()
        total = mean([gradient.tensors for gradient in gradients])
        await node.compute(replica.apply, total, cost=replica.apply_cost())
        replica.ledger.take(gradient.group for gradient in gradients)
        applied += len(gradients)
        version += 1
        for gradient in gradients:
            staleness = version - 1 - gradient.taken_at
            node.record(step=version, loss=gradient.loss, staleness=staleness, applied=applied)

    async def train() -> None:
        """The server's own gradients tick a clock like everyone's."""
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            taken_at = version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            node.record(step=version, pushed=step)
            own_turn.clear()
            async with updating:
                gradient = Gradient(SERVER, own, taken_at, loss, replica.ledger.hand_in(step))
                await push(gradient, last=step == replica.steps)
            clocks.look()
            await own_turn.wait()

    async with asyncio.TaskGroup() as tasks:
        if SERVER in ranks:
            clocks.train(tasks, train())
        while (arrived := await clocks.next()) is not None:
            # Push: in order of arrival.
            async with updating:
                if isinstance(arrived, PeerLost):
                    clocks.lost(arrived)
                    await release()
                else:
                    await push(Gradient.received(arrived, arrived["version"], replica), last=arrived["last"])
    await fold()  # of a worker that was lost behind its last push


async def _work(node: Transport, replica: Replica, *, loose: bool) -> None:
    version = replica.restored(version=0)
    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push: the clock ticks.
        last = step == replica.steps
        replica.ledger.hand_in(step)
        await node.send(SERVER, "push", pack(*gradients, version=version, loss=loss, last=last))

        # Phase 3, read: answered when the slowest is near enough.
        message = await node.recv(SERVER, "weights")
        replica.load(message.tensors)
        version = message["version"]
        await replica.checkpoint(step, loose=loose, version=version)
