"""Stale-synchronous parallel: fast workers run ahead of the slowest by a bounded number of clocks.

Ho et al. 2013 (NIPS), section 2. A worker's clock c counts the gradients that it has pushed. It may read the weights
and begin the next gradient while c - min c <= s, so the fastest never leads the slowest by more than s + 1 clocks. With
s = 0 all ranks wait for each other, as with the synchronous parameter server; with s infinite none waits, as with the
asynchronous one. Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import NonNegativeInt

from simcluster.algorithms.clocks import Clocks
from simcluster.algorithms.facts import Facts
from simcluster.algorithms.parameter_server.asynchronous import Server, push_to_server
from simcluster.algorithms.parameter_server.facts import served, stale_copies
from simcluster.algorithms.parameter_server.push import Push
from simcluster.algorithms.parameter_server.server import SERVER, mean, trainers
from simcluster.algorithms.steps import resumable, steps
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=stale_copies, world=served(), exact=lambda settings: settings.get("staleness") == 0, spares="workers")
async def ssp(
    node: Transport, replica: Replica, *, staleness: NonNegativeInt | None = 3, server_trains: bool = True
) -> None:
    """Every batch is a clock tick: a push, and a read that is answered once the bound allows.

    *staleness*: the bound s; None is infinite. *server_trains*: false for a server that only serves. Pushes are applied
    at the next read, as one step with their mean. The clock of a lost worker delays no rank; a worker that joins late
    or rejoins starts at the slowest rank's clock.
    """
    ranks = trainers(node.size, server_trains)
    if node.rank == SERVER:
        await _serve(node, replica, ranks, staleness)
    else:
        await _work(node, replica, loose=staleness != 0)


async def _serve(node: Transport, replica: Replica, ranks: Sequence[int], s: int | None) -> None:
    state = resumable(replica, version=0, applied=0)
    clocks = Clocks(node, replica, ranks, s)
    unread: list[Push] = []

    async with Server(node, replica, clocks, "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients())
        async for push in server.news():
            # Phase 1, push, in order of arrival: the rank's clock ticks, and it waits to read.
            if push is not None:
                unread.append(push)
                node.record(step=state.version, lead=clocks.tick(push))

            # Phase 2, read: answer the ranks now within the bound, all with the same weights.
            while free := clocks.free():
                await _fold(node, replica, server, unread)
                await server.keep(state.applied // len(ranks) if s != 0 else state.version, loose=s != 0)
                for waiting in free:
                    clocks.go_on(waiting)
                    server.send_weights(waiting)
    await _fold(node, replica, server, unread)  # from a worker lost after its last push


async def _fold(node: Transport, replica: Replica, server: Server, unread: list[Push]) -> None:
    """Take one step with the mean of *unread*: in rank order, divided by the number actually summed."""
    if unread:
        pushes = sorted(unread, key=lambda push: push.rank)
        unread.clear()
        total = mean([push.tensors for push in pushes])
        await node.compute(replica.apply, total, cost=replica.apply_cost())
        server.count(pushes)


async def _work(node: Transport, replica: Replica, *, loose: bool) -> None:
    state = resumable(replica, version=0)
    async for step, batch in steps(replica, keep=state, loose=loose):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push: the clock ticks.
        last = step == replica.steps
        await push_to_server(node, replica, *gradients, version=state.version, loss=loss, last=last)

        # Phase 3, read: answered once the slowest rank is close enough.
        message = await node.recv(SERVER, "weights")
        replica.load(message.tensors)
        state.version = message["version"]
