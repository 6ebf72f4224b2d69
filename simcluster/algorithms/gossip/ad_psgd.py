"""Asynchronous decentralized parallel SGD: no rank waits for another's step; ranks average in pairs.

Lian et al. 2018 (ICML), algorithm 1. A rank computes a gradient at weights x^ that it read earlier.
Meanwhile it averages its weights with a random neighbour's: both take the mean. Then it applies the
gradient to its weights, which may have moved. As in the paper (section 3), the graph is bipartite:
ranks on one side ask, those on the other side answer, even while they compute. A rank that waits
for an answer is never asked, so ranks cannot wait for each other in a cycle, and no deadlock can
form.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Literal

from simcluster.algorithms.facts import Facts, by_samples, never
from simcluster.algorithms.gossip.gossip_copies import ad_psgd_copies
from simcluster.algorithms.gossip.partners import Partners, Requests
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import StaticOverlay, moving, overlay_for
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(copies=ad_psgd_copies, exact=never, evenly=by_samples)
async def ad_psgd(
    node: Transport, replica: Replica, *, overlay: StaticOverlay = "ring", output: Literal["local", "mean"] = "local"
) -> None:
    """Train with one gradient per batch on every rank, and one averaging per batch on the ranks
    that ask.

    Edges count in both directions. If *overlay* has odd cycles, edges within one side are ignored; the sides are even
    and odd ranks if that leaves the graph connected, otherwise even and odd distances from rank 0. *output*: the final
    model, a rank's `local` weights or the `mean` of all, for which all ranks wait at the end.

    Staleness is the number of times that a rank's weights were averaged between reading x^ and
    applying the gradient. Ranks survive the loss of a partner and average with it again once it
    rejoins; a rank that has lost all partners trains alone. Only the computation of the `mean` of
    all raises PeerLost. An answering rank serves until all ranks that may ask it have ended.
    """
    partners = Partners(node, overlay_for(overlay, node.size, node.rng.seed, moving))
    requests = Requests(partners, replica)
    state = resumable(replica, x=replica.snapshot(), averagings=0)  # the replica stays at x^ while x moves on
    training = _train(node, replica, state, partners, requests)

    async def answer() -> None:
        while (request := await requests.next_request()) is not None:
            # Atomic: no await between reading x and writing it.
            state.x = [(mine + theirs) / 2 for mine, theirs in zip(state.x, request.tensors, strict=True)]
            state.averagings += 1
            group.create_task(partners.send(request.source, "mean", state.x))

    async with asyncio.TaskGroup() as group:
        if partners.asks:
            group.create_task(training)
        else:
            own = requests.train(group, training)
            answering = group.create_task(answer())
            # Phase 3, end: wait for the ranks that ask. Peers notice an end without a message.
            await own
            await partners.ended()
            answering.cancel()
    replica.load(state.x)

    if output == "mean":
        # The algorithm continues after training, so peers would not notice that this rank has
        # stopped asking.
        await partners.say_end()
        await partners.end_with_mean(replica)


async def _train(
    node: Transport, replica: Replica, state: SimpleNamespace, partners: Partners, requests: Requests
) -> None:
    async def average() -> None:
        if (mean := await partners.ask(state.x)) is not None:
            state.x, state.averagings = mean, state.averagings + 1

    async for step, batch in steps(replica, keep=state, loose=True):
        # Phase 1, compute at x^; meanwhile an asking rank averages with a random neighbour.
        x_hat, before = state.x, state.averagings
        async with asyncio.TaskGroup() as both:
            if partners.asks and partners.ranks:
                both.create_task(average())
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, apply to the current x the step that was taken from x^.
        await node.compute(replica.apply, weighed(replica, gradients), cost=replica.apply_cost())
        staleness = state.averagings - before
        moves = zip(state.x, x_hat, replica.parameters, strict=True)
        state.x = [now + (end - start) for now, start, end in moves] if staleness else replica.snapshot()
        replica.load(state.x)
        node.record(step=step, loss=loss, staleness=staleness)
        requests.look()
