"""Stale-synchronous parallel: fast workers run ahead of the slowest by a bounded number of clocks.

Ho et al. 2013 (NIPS), section 2. A worker's clock c counts the gradients that it has pushed. It may
read the weights and begin the next gradient while c - min c <= s, so the fastest worker never leads
the slowest by more than s + 1 clocks. With s = 0 all ranks wait for each other, as with the
synchronous parameter server; with s infinite no rank waits, as with the asynchronous one. Rank 0
serves, and also trains by default.
"""

from __future__ import annotations

from pydantic import NonNegativeInt

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_gradients
from simcluster.algorithms.parameter_server.server import SERVER, Push, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, served, stale_copies
from simcluster.algorithms.parameter_server.serving import PushClocks
from simcluster.algorithms.steps import resumable
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(
    copies=stale_copies,
    world=served(),
    exact=lambda settings: settings.get("staleness") == 0,
    joins=lambda settings: settings.get("staleness") == 0,
    spares="workers",
    evenly=drawn_by_all,
    running="server",
)
async def ssp(
    node: Transport, replica: Replica, *, staleness: NonNegativeInt | None = 3, server_trains: bool = True
) -> None:
    """Push the gradient of each batch, which advances the worker's clock by one; then read the
    weights once the bound allows it.

    *staleness*: the bound s; None is infinite. *server_trains*: whether the server also trains.
    Pushes are applied at the next read, in one step along their mean. The clock of a lost worker
    delays no rank. A worker that joins late or rejoins starts at the slowest rank's clock. A worker
    that a checkpoint restores more than s ahead starts s ahead.
    """
    ranks = trainers(node.size, server_trains)
    loose = staleness != 0  # whether ranks may be at different steps
    if node.rank != SERVER:
        await push_gradients(node, replica, loose=loose, says_last=True)
        return
    state, unread = resumable(replica, version=0, applied=0), list[Push]()
    clocks = PushClocks(node, replica, ranks, staleness)

    async with PushServer(node, replica, clocks, "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients())
        async for push in server.news():
            # Phase 1, push, in order of arrival: the rank's clock ticks, and it waits to read.
            if push is not None:
                unread.append(push)
                node.record(step=state.version, lead=clocks.tick(push))

            # Phase 2, read: answer the ranks now within the bound, all with the same weights.
            while free := clocks.free():
                if unread:
                    await server.step(unread, len(ranks))
                    unread.clear()
                await server.keep(state.applied // len(ranks) if loose else state.version, loose=loose)
                for waiting in free:
                    clocks.go_on(waiting)
                    server.send_weights(waiting)
    if unread:  # pushes of a worker that was lost before it could read
        await server.step(unread, len(ranks))
