"""Asynchronous decentralized parallel SGD: nobody waits for anybody's step; pairs of ranks average, one pair at a time.

Lian et al. 2018 (ICML), algorithm 1: a rank computes a gradient at weights x^ that it has read, averages its weights
with a random neighbour's meanwhile, both of the pair taking the mean, and applies the gradient to what its weights are
by then. As in the paper (section 3), neighbours are of two sides: some ask, the others answer, also while they compute.
Who waits for an answer is never asked, so no circle of waiting can close, on any graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Literal

from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.gossip.facts import ad_psgd_copies
from simcluster.algorithms.gossip.partners import Partners, Requests
from simcluster.algorithms.steps import resumable, steps
from simcluster.overlays import StaticOverlay, moving, overlay_for
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(copies=ad_psgd_copies, exact=never)
async def ad_psgd(
    node: Transport, replica: Replica, *, overlay: StaticOverlay = "ring", output: Literal["local", "mean"] = "local"
) -> None:
    """A gradient per batch on every rank, an averaging per batch of those that ask.

    Edges count both ways, and of an *overlay* that has odd circles those between ranks of one side are not used:
    of even and odd ranks where that connects all, else of even and odd distances from rank 0. *output*: what a rank
    ends with, its `local` weights or the `mean` of all, for which all wait for each other at the end.

    Staleness is how often a rank's weights were averaged between the reading of x^ and the gradient's application.
    A partner that is lost leaves the others to go on, without a partner alone, and is averaged with again if it comes
    back; PeerLost is raised where the mean of all is needed. A rank that answers does so until all that may ask it have
    ended.
    """
    partners = Partners(node, overlay_for(overlay, node.size, node.rng.seed, moving))
    requests = Requests(partners)
    state = resumable(replica, x=replica.snapshot(), averagings=0)  # the replica is at x^ while x moves on
    training = _train(node, replica, state, partners, requests)

    async with asyncio.TaskGroup() as group:
        if partners.asks:
            group.create_task(training)
        else:
            requests.train(group, training)
            while (request := await requests.next_request()) is not None:
                # Atomic: nothing waits between reading x and writing it.
                state.x = [(mine + theirs) / 2 for mine, theirs in zip(state.x, request.tensors, strict=True)]
                state.averagings += 1
                group.create_task(partners.send(request.source, "mean", state.x))

    # Phase 3, end: a rank that answers may stop waiting for this one.
    async with asyncio.TaskGroup() as group:
        for partner in partners.ranks if partners.asks else ():
            group.create_task(partners.send(partner, "average"))
    replica.load(state.x)
    if output == "mean":
        await partners.end_with_mean(replica)


async def _train(
    node: Transport, replica: Replica, state: SimpleNamespace, partners: Partners, requests: Requests
) -> None:
    async def average() -> None:
        if (mean := await partners.ask(state.x)) is not None:
            state.x, state.averagings = mean, state.averagings + 1

    async for step, batch in steps(replica, keep=state, loose=True):
        # Phase 1, compute at x^; meanwhile a rank that asks averages with a random neighbour.
        x_hat, before = state.x, state.averagings
        async with asyncio.TaskGroup() as both:
            if partners.asks and partners.ranks:
                both.create_task(average())
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))

        # Phase 2, apply to x as it is by then: the step that was taken from x^.
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        staleness = state.averagings - before
        state.x = _moved(state.x, x_hat, replica.parameters) if staleness else replica.snapshot()
        replica.load(state.x)
        node.record(step=step, loss=loss, staleness=staleness)
        requests.look()


def _moved(x: Sequence[Tensor], start: Sequence[Tensor], end: Sequence[Tensor]) -> list[Tensor]:
    """Return x + (end - start)."""
    return [now + (b - a) for now, a, b in zip(x, start, end, strict=True)]
