"""K-async and K-batch-async: the server updates on the first K gradients, and no work is thrown away.

Dutta et al. 2018 (AISTATS), section 2. K-async gathers from K different ranks, which wait for the update; the others
continue, so their gradients are stale on arrival. K-batch-async gathers any K gradients, and every rank continues at
once with the current weights. K = 1 is the asynchronous parameter server; K-async with K = P, all training ranks, is
the synchronous one. Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, Settings
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_gradients
from simcluster.algorithms.parameter_server.server import SERVER, Push, most_of, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, served, stale_copies
from simcluster.algorithms.parameter_server.serving import ExpectedPushes
from simcluster.algorithms.steps import resumable
from simcluster.transport import Transport
from simcluster.workloads import Replica


def _waits_for_all(settings: Settings) -> bool:
    return settings.get("k") is None and not settings.get("batch")


@Facts(
    copies=stale_copies,
    world=served("k"),
    exact=_waits_for_all,
    joins=_waits_for_all,
    spares="workers",
    evenly=drawn_by_all,
    running="server",
)
async def k_async(
    node: Transport, replica: Replica, *, k: PositiveInt | None = None, batch: bool = False, server_trains: bool = True
) -> None:
    """Push every batch's gradient; the server applies the mean of *k* pushes to its current
    weights.

    *k*: the number of gradients per update (K); None is the number of training ranks (P). *batch*:
    false is K-async, true is K-batch-async. *server_trains*: whether the server also trains. If
    ranks have finished or are lost, so that fewer than *k* gradients can come, an update takes
    those that can.
    """
    ranks = trainers(node.size, server_trains)
    K = most_of(ranks, "k", k)
    loose = batch or len(ranks) > K  # whether ranks may be at different steps
    if node.rank != SERVER:
        await push_gradients(node, replica, loose=loose)
        return
    state, pending = resumable(replica, version=0, applied=0), list[Push]()
    expected = ExpectedPushes(node, replica, ranks)

    async with PushServer(node, replica, expected, "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients())
        async for push in server.news():
            # Phase 1, gather, in order of arrival: K gradients. Fewer are enough if no more can
            # come; in K-async none can once all ranks present wait.
            pending += [push] if push is not None else []
            left, waiting = expected.left(), {push.rank for push in pending}
            if pending and (len(pending) == K or (not left if batch else left <= waiting)):
                # Phase 2, update.
                await server.step(pending, len(ranks))
                # Phase 3, pull: in K-async after the update.
                for gradient in sorted(pending, key=lambda push: push.rank) if not batch else ():
                    server.send_weights(gradient, only_newer=True)
                pending.clear()
                await server.keep(state.applied // len(ranks) if loose else state.version, loose=loose)
            if batch and push is not None:  # in K-batch-async a rank is answered at once
                server.send_weights(push, only_newer=True)
