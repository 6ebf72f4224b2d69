"""Stale-synchronous parallel: fast workers run ahead of the slowest, by a bounded number of clocks and no further.

Ho et al. 2013 (NIPS), section 2. A worker's clock c counts the gradients that it has pushed. It may read the weights,
and begin the next one, while c - min c <= s; so the fastest leads the slowest by s + 1 clocks at most, always. With
s = 0 all wait for all, which is the synchronous parameter server; with s infinite nobody waits, the asynchronous one.
Rank 0 serves, and trains as well unless told not to.

This file knows both halves of one protocol, and clocks that are counters. It must not know a backend, a file or time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from pydantic import NonNegativeInt
from torch import Tensor

from simcluster.algorithms.parameter_server import SERVER, done_by, keep, mean, reply_to, trainers
from simcluster.algorithms.serving import Listener
from simcluster.errors import PeerLost
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.ledger import Group


class Update(NamedTuple):
    """A gradient not read by any rank yet, the version of the weights that it was taken at, its batch in the ledger."""

    gradients: Sequence[Tensor]
    taken_at: int
    loss: float
    group: Group


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
    there = [rank for rank in ranks if rank in (SERVER, *node.peers)]
    clock = {rank: done for rank in there if (done := done_by(replica, rank)) < replica.steps}  # of who has not ended
    unread: list[tuple[int, Update]] = []
    waiting: dict[int, bool] = {}  # who would read, and whether that is the last time
    through = {rank for rank in ranks if done_by(replica, rank) >= replica.steps}
    own_turn, updating = asyncio.Event(), asyncio.Lock()

    def expected() -> bool:
        """Whether any worker has a push to come."""
        return any(rank != SERVER for rank in clock) or any(rank not in through for rank in node.peers)

    async def tick(rank: int, update: Update, last: bool) -> None:
        """A push: the worker's clock moves on, and it waits to read."""
        unread.append((rank, update))
        waiting[rank] = last
        clock[rank] = clock.get(rank, min(clock.values(), default=0)) + 1
        node.record(step=version, lead=max(clock.values()) - min(clock.values()))
        await release()

    async def release() -> None:
        """Answers those whom the bound holds up no longer, all with the same weights."""
        while free := [rank for rank in sorted(waiting) if s is None or clock[rank] - min(clock.values()) <= s]:
            await fold()
            await keep(replica, applied, len(ranks), at=None if s != 0 else version, version=version, applied=applied)
            for rank in free:
                if waiting.pop(rank):
                    del clock[rank]
                    through.add(rank)
                if rank == SERVER:
                    own_turn.set()
                else:
                    tasks.create_task(reply_to(node, rank, "weights", pack(*replica.snapshot(), version=version)))

    async def fold() -> None:
        """One step with the mean of what is unread: by rank, divided by the number really summed."""
        nonlocal version, applied
        updates = [update for _, update in sorted(unread, key=itemgetter(0))]
        if not updates:
            return
        unread.clear()
        total = mean([update.gradients for update in updates])
        await node.compute(replica.apply, total, cost=replica.apply_cost())
        replica.ledger.take(update.group for update in updates)
        applied += len(updates)
        version += 1
        for update in updates:
            node.record(step=version, loss=update.loss, staleness=version - 1 - update.taken_at, applied=applied)

    async def train() -> None:
        """The server's own gradients tick a clock like everyone's."""
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            taken_at = version
            loss, own = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            node.record(step=version, pushed=step)
            own_turn.clear()
            async with updating:
                group = replica.ledger.hand_in(step)
                await tick(SERVER, Update(own, taken_at, loss, group), last=step == replica.steps)
            listener.look()
            await own_turn.wait()

    listener = Listener(node, expected)
    async with asyncio.TaskGroup() as tasks:
        if SERVER in ranks:
            listener.train(tasks, train())
        while (push := await listener.next()) is not None:
            # Push: in order of arrival.
            if isinstance(push, PeerLost):  # it may be back already
                through.discard(push.rank)
                async with updating:
                    for rank in [rank for rank in clock if rank == push.rank or rank not in (SERVER, *node.peers)]:
                        del clock[rank]
                        waiting.pop(rank, None)
                    await release()
                continue
            async with updating:
                update = Update(push.tensors, push["version"], push["loss"], replica.ledger.receive(push))
                await tick(push.source, update, push["last"])
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
