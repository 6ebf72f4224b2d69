"""n-softsync: an asynchronous parameter server that gathers lambda/n gradients per update, from any ranks.

Zhang, Gupta, Lian and Liu 2016 (IJCAI), section 2, with the staleness-aware learning rate of section 3. With lambda
training ranks, n = 1 gathers as many gradients per update as a synchronous server, but waits for no rank in particular;
n = lambda is the asynchronous server. With one gradient in flight per rank, the mean staleness is (lambda - 1)/K for K
= lambda/n, which is nearly n. Rank 0 serves, and also trains by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import PositiveInt

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.parameter_server.asynchronous import Server, push_to_server
from simcluster.algorithms.parameter_server.facts import served, stale_copies
from simcluster.algorithms.parameter_server.push import Push
from simcluster.algorithms.parameter_server.server import SERVER, mean, most_of, trainers
from simcluster.algorithms.parameter_server.serving import Expected
from simcluster.algorithms.steps import resumable, steps
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
    """Every batch is a push, answered at once: with the weights if there are newer ones.

    *n*: the splitting parameter; an update takes K = lambda // n gradients, the last one what is left. *damping*:
    `inverse` divides each gradient by its staleness, if above 1. *server_trains*: false for a server that only serves.
    Ranks survive the loss of a worker; K stays the same.
    """
    ranks = trainers(node.size, server_trains)
    K = len(ranks) // most_of(ranks, "n", n)
    if node.rank == SERVER:
        await _serve(node, replica, ranks, K, damping)
    else:
        await _work(node, replica)


async def _serve(node: Transport, replica: Replica, ranks: Sequence[int], K: int, damping: str) -> None:
    state = resumable(replica, version=0, applied=0)
    pending: list[Push] = []

    async with Server(node, replica, Expected(node, replica, ranks), "weights", keep=state) as server:
        if SERVER in ranks:
            server.train(server.gradients())
        async for push in server.pushes():
            # Phase 1, gather: K gradients, in order of arrival.
            pending.append(push)

            # Phase 2, update.
            if len(pending) == K:
                await _update(node, replica, server, pending, damping)
                await server.keep(state.applied // len(ranks))

            # Phase 3, pull: the weights, if they differ from those that the gradient was taken at.
            server.send_weights(push, only_newer=True)
    if pending:
        await _update(node, replica, server, pending, damping)
        await server.keep(state.applied // len(ranks))


async def _update(node: Transport, replica: Replica, server: Server, pending: list[Push], damping: str) -> None:
    """Take one step with the mean of *pending*: in rank order, divided by the number actually summed."""
    pending.sort(key=lambda push: push.rank)
    divisors = [max(1, server.staleness(push)) if damping == "inverse" else 1 for push in pending]
    parts = [
        push.tensors if divisor == 1 else [tensor / divisor for tensor in push.tensors]
        for push, divisor in zip(pending, divisors, strict=True)
    ]
    await node.compute(replica.apply, mean(parts), cost=replica.apply_cost())
    server.count(pending)
    pending.clear()


async def _work(node: Transport, replica: Replica) -> None:
    state = resumable(replica, version=0)
    async for step, batch in steps(replica, keep=state, loose=True):
        # Phase 1, compute.
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        node.record(step=step, loss=loss, pushed=step)

        # Phase 2, push and pull.
        await push_to_server(node, replica, *gradients, version=state.version, loss=loss)
        message = await node.recv(SERVER, "weights")
        if message.tensors:
            replica.load(message.tensors)
        state.version = message["version"]
