"""Asynchronous decentralized parallel SGD: nobody waits for anybody's step; pairs of ranks average, one pair at a time.

Lian et al. 2018 (ICML), algorithm 1: a rank computes a gradient at weights x^ that it has read, averages its weights
with a random neighbour's meanwhile, both of the pair taking the mean, and applies the gradient to what its weights are
by then. As in the paper (section 3), neighbours are of two sides: some ask, the others answer, also while they compute.
Who waits for an answer is never asked, so no circle of waiting can close, on any graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.gossip.facts import ad_psgd_copies
from simcluster.algorithms.parameter_server.serving import Requests
from simcluster.errors import PeerLost
from simcluster.overlays import (
    StaticOverlay,
    check_not_left_behind,
    everybodys_mean,
    moving,
    overlay_for,
    squared_distance,
)
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@dataclass
class Model:
    """This rank's weights x, never changed in place: the replica is at x^ while x moves on."""

    x: list[Tensor]
    averagings: int = 0

    def take(self, mean: list[Tensor]) -> list[Tensor]:
        self.x, self.averagings = mean, self.averagings + 1
        return mean


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
    graph = overlay_for(overlay, node.size, node.rng.seed, moving)
    asks = node.rank in graph.asking
    partners = [rank for rank in graph.neighbours(node.rank) if (rank in graph.asking) != asks]

    mine = Model(*replica.restored(x=replica.snapshot(), averagings=0))
    gone: dict[int, PeerLost] = {}
    told: set[int] = set()
    requests = Requests(node, partners)

    async def train() -> None:
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            # Phase 1, compute at x^; meanwhile who asks averages with a random neighbour.
            x_hat, before = mine.x, mine.averagings
            async with asyncio.TaskGroup() as both:
                if asks and partners:
                    both.create_task(_ask(node, mine, partners, gone, told))
                loss, gradients = await node.compute(
                    replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch)
                )
            # Phase 2, apply to x as it is by then: the step that was taken from x^.
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
            averaged = mine.averagings > before
            mine.x = _moved(mine.x, x_hat, replica.parameters) if averaged else replica.snapshot()
            replica.load(mine.x)
            node.record(step=step, loss=loss, staleness=mine.averagings - before)
            requests.look()
            await replica.checkpoint(step, loose=True, x=mine.x, averagings=mine.averagings)

    async with asyncio.TaskGroup() as group:
        if asks:
            group.create_task(train())
        else:
            requests.train(group, train())
            while (request := await requests.next_request(gone)) is not None:
                # Atomic: nothing waits between reading x and writing it.
                mean = mine.take(_mean(mine.x, request.tensors))
                group.create_task(_send(node, request.source, "mean", mean))

    # Phase 3, end: whoever answers may stop waiting for this rank.
    async with asyncio.TaskGroup() as group:
        for partner in partners if asks else ():
            group.create_task(_send(node, partner, "average", ()))
    replica.load(mine.x)
    if output == "mean":
        mean = await everybodys_mean(node, mine.x, "output", gone)
        node.record(step=replica.steps, consensus=squared_distance(mine.x, mean))
        replica.load(mean)


async def _ask(
    node: Transport, mine: Model, partners: Sequence[int], gone: dict[int, PeerLost], told: set[int]
) -> None:
    """One averaging, with one of those *partners* that live, if any does; of the others *gone* says why.

    A lost rank is asked once more, and says so; only then is one that came back dealt with: *told* has these.
    """
    while living := [rank for rank in partners if rank in node.peers or rank not in told]:
        partner = living[int(node.rng.numpy.integers(len(living)))]
        try:
            await node.send(partner, "average", pack(*mine.x))
            mine.take(list((await node.recv(partner, "mean")).tensors))
            told.discard(partner)
            return
        except PeerLost as lost:
            gone[partner] = lost
            told.add(partner)
    check_not_left_behind(gone, partners)


def _mean(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[Tensor]:
    return [(a + b) / 2 for a, b in zip(mine, theirs, strict=True)]


def _moved(x: Sequence[Tensor], start: Sequence[Tensor], end: Sequence[Tensor]) -> list[Tensor]:
    """x + (end - start)."""
    return [now + (b - a) for now, a, b in zip(x, start, end, strict=True)]


async def _send(node: Transport, to: int, tag: str, tensors: Sequence[Tensor]) -> None:
    try:
        await node.send(to, tag, pack(*tensors))
    except PeerLost:
        return  # told to whoever waits for it, and counted there
