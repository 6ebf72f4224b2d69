"""n-softsync: an asynchronous parameter server that gathers lambda/n gradients per update, from any ranks.

Zhang, Gupta, Lian and Liu 2016 (IJCAI), section 2, with the staleness-aware learning rate of
section 3. With lambda training ranks, n = 1 gathers as many gradients per update as a synchronous
server, but waits for no rank in particular; n = lambda is the asynchronous server. With one
gradient in flight per rank, the mean staleness is (lambda - 1)/K, where K = lambda/n, so it is
nearly n. Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_gradients
from simcluster.algorithms.parameter_server.server import SERVER, Push, most_of, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, served, stale_copies
from simcluster.algorithms.parameter_server.serving import ExpectedPushes
from simcluster.algorithms.steps import resumable
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(
    copies=stale_copies, world=served("n"), exact=never, spares="workers", evenly=drawn_by_all, running="server"
)  # fmt: skip
async def softsync(
    node: Transport,
    replica: Replica,
    *,
    n: PositiveInt = 1,
    damping: Literal["none", "inverse"] = "none",
    server_trains: bool = True,
) -> None:
    """Push every batch's gradient; the server answers at once, with the weights if they are newer.

    *n*: the splitting parameter; an update takes K = lambda // n gradients, and the last update
    takes those left over. *damping*: `inverse` divides each gradient by its staleness if that is
    above 1. *server_trains*: whether the server also trains. Ranks survive the loss of a worker; K
    stays the same.
    """
    ranks = trainers(node.size, server_trains)
    K = len(ranks) // most_of(ranks, "n", n)
    if node.rank != SERVER:
        await push_gradients(node, replica, loose=True)
        return
    state, pending = resumable(replica, version=0, applied=0), list[Push]()

    async with PushServer(node, replica, ExpectedPushes(node, replica, ranks), "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients())
        async for push in server.pushes():
            # Phase 1, gather: K gradients, in order of arrival.
            pending.append(push)

            # Phase 2, update.
            if len(pending) == K:
                await server.step(pending, len(ranks), damping)
                await server.keep(state.applied // len(ranks))
                pending.clear()

            # Phase 3, pull: the weights, if they differ from those that the gradient was taken at.
            server.send_weights(push, only_newer=True)
    if pending:
        await server.step(pending, len(ranks), damping)
        await server.keep(state.applied // len(ranks))
