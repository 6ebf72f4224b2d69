"""K-sync and K-batch-sync: the server takes the first K gradients of a step and cancels the rest of the work.

Dutta et al. 2018 (AISTATS), section 2. In K-sync every rank computes one gradient at the step's
weights, and the first K of P make the step. In K-batch-sync a rank that has pushed a gradient
computes another one, and the first K gradients from any ranks make the step. In both variants all
ranks begin the next step together, with its weights. K-sync with K = P is the synchronous parameter
server. Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

import asyncio

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, Settings
from simcluster.algorithms.parameter_server.barrier import BatchWorker
from simcluster.algorithms.parameter_server.race import Race
from simcluster.algorithms.parameter_server.server import SERVER, endless, mean, most_of, trainers, unless_told
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all, k_sync_copies, served
from simcluster.payload import Message
from simcluster.transport import FREE, Transport
from simcluster.workloads import Replica


def _waits_for_all(settings: Settings) -> bool:
    return settings.get("k") is None and not settings.get("batch")


@Facts(
    copies=k_sync_copies,
    world=lambda size, settings: served(None if settings["batch"] else "k")(size, settings),
    exact=_waits_for_all,
    joins=_waits_for_all,
    spares="workers",
    evenly=drawn_by_all,
    running="server",
)
async def k_sync(
    node: Transport, replica: Replica, *, k: PositiveInt | None = None, batch: bool = False, server_trains: bool = True
) -> None:
    """Train with one step of the server's optimizer per *k* gradients. The number of steps is the
    number of batches of a rank.

    *k*: the number of gradients per step (K); None is the number of training ranks (P). *batch*:
    false is K-sync, where *k* is at most P; true is K-batch-sync. *server_trains*: whether the
    server also trains. Gradients after the K-th are rejected. Ranks survive the loss of workers,
    which may rejoin. If fewer than K training ranks are left, a step of K-sync takes one gradient
    of each. A rank that has used up its batches starts over with the first one.
    """
    ranks = trainers(node.size, server_trains)
    needed = k if batch and k is not None else most_of(ranks, "k", k)
    loose = batch or needed < len(ranks)  # whether ranks may be at different steps
    if node.rank != SERVER:
        await _work(node, replica, batch, loose)
        return
    async with asyncio.TaskGroup() as group:
        server = Race(node, replica, group, trains=server_trains, loose=loose)
        async for _ in server:
            # Phase 1, compute: every rank, at the weights of this step, until there are K gradients.
            first = await server.first(needed, again=batch)

            # Phase 2, apply: in rank order, weighted by the samples actually summed.
            total = mean([push.tensors for push in first], server.samples(first))
            await node.compute(replica.apply, total, cost=replica.apply_cost())
            server.count(first)

            # Phase 3, next step for all: a rank that is still computing drops its work.
            server.call_off()
        await server.see_off()  # pushes that arrive after the last step are rejected


async def _work(node: Transport, replica: Replica, batch: bool, loose: bool) -> None:
    worker = BatchWorker(node, replica, endless(replica), loose=loose)
    async for data in worker:
        # Phase 1, compute, unless the next step's weights arrive first.
        work = node.compute(replica.loss_and_gradients, data, cost=replica.gradient_cost(data))
        news = await unless_told(node, "weights", work)

        # Phase 2, push; then wait, or compute another gradient at the same weights.
        if not isinstance(news, Message):
            loss, gradients = news
            if batch:
                await worker.push("push", gradients, loss)
                continue
            news = await worker.push_and_wait("push", gradients, loss, "weights")

        # Phase 3, pull. On a real device, dropped work may still run: load the weights after it.
        await node.compute(replica.load, news.tensors, cost=FREE)
        worker.step = news["step"]
