"""Asynchronous decentralized parallel SGD: nobody waits for anybody's step; pairs of ranks average, one pair at a time.

Lian et al. 2018 (ICML), algorithm 1: a rank computes a gradient at weights x^ that it has read, averages its weights
with a random neighbour's meanwhile, both of the pair taking the mean, and applies the gradient to what its weights are
by then. As in the paper (section 3), neighbours are of two sides: some ask, the others answer, also while they compute.
Who waits for an answer is never asked, so no circle of waiting can close, on any graph.

This file knows pairs, weights and gradients. It must not know a backend, a file or a clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from simcluster.errors import ENDED, PeerLost
from simcluster.overlays import StaticOverlay, everybodys_mean, moving, overlay_for, squared_distance
from simcluster.payload import pack
from simcluster.transport import ANY, Transport
from simcluster.workloads import Replica


async def ad_psgd(
    node: Transport, replica: Replica, *, overlay: StaticOverlay = "ring", output: Literal["local", "mean"] = "local"
) -> None:
    """A gradient per batch on every rank, an averaging per batch of those that ask.

    Edges count both ways, and of an *overlay* that has odd circles those between ranks of one side are not used:
    of even and odd ranks where that connects all, else of even and odd distances from rank 0. *output*: what a rank
    ends with, its `local` weights or the `mean` of all, for which all wait for each other at the end.

    Staleness is how often a rank's weights were averaged between the reading of x^ and the gradient's application.
    A partner that is lost leaves the others to go on; PeerLost is raised by whoever has no partner left, and where the
    mean of all is needed. A rank that answers does so until all that may ask it have ended.
    """
    graph = overlay_for(overlay, node.size, node.rng.seed, moving)
    asks = node.rank in graph.asking
    partners = [rank for rank in graph.neighbours(node.rank) if (rank in graph.asking) != asks]

    x, averagings = replica.snapshot(), 0  # never changed in place: the replica is at x^ while x moves on
    living, gone = list(partners), dict[int, PeerLost]()

    def take(mean: list[Tensor]) -> list[Tensor]:
        nonlocal x, averagings
        x, averagings = mean, averagings + 1
        return mean

    async def train() -> None:
        nonlocal x
        for step, batch in enumerate(replica.batches(), start=1):
            # Phase 1, compute at x^; meanwhile who asks averages with a random neighbour.
            x_hat, before = x, averagings
            async with asyncio.TaskGroup() as both:
                if asks and partners:
                    both.create_task(ask())
                loss, gradients = await node.compute(
                    replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch)
                )
            # Phase 2, apply to x as it is by then: the step that was taken from x^.
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())
            x = _moved(x, x_hat, replica.parameters) if averagings > before else replica.snapshot()
            replica.load(x)
            node.record(step=step, loss=loss, staleness=averagings - before)

    async def ask() -> None:
        while living:
            partner = living[int(node.rng.numpy.integers(len(living)))]
            try:
                await node.send(partner, "average", pack(*x))
                take(list((await node.recv(partner, "mean")).tensors))
                return
            except PeerLost as lost:
                living.remove(partner)
                gone[partner] = lost
        raise next(iter(gone.values()))

    async def answer() -> None:
        to_end, ended = set(partners), 0
        async with asyncio.TaskGroup() as replies:
            while to_end:
                try:
                    request = await node.recv(ANY, "average")
                except PeerLost as lost:
                    gone[lost.rank] = lost
                    to_end.intersection_update(node.peers)
                    continue
                if not request.tensors:
                    to_end.discard(request.source)
                    ended += 1
                    continue
                to_end.add(request.source)  # also one that was lost and has come back
                # Atomic: nothing waits between reading x and writing it.
                mean = take(_mean(x, request.tensors))
                replies.create_task(_send(node, request.source, "mean", mean))
        dead = [gone[rank] for rank in partners if rank in gone and gone[rank].reason != ENDED]
        if dead and len(dead) == len(partners) and not ended:
            raise dead[0]

    async with asyncio.TaskGroup() as group:
        group.create_task(train())
        if not asks:
            group.create_task(answer())

    # Phase 3, end: whoever answers may stop waiting for this rank.
    async with asyncio.TaskGroup() as group:
        for partner in partners if asks else ():
            group.create_task(_send(node, partner, "average", ()))
    replica.load(x)
    if output == "mean":
        if gone:  # the mean of all is not to be had
            raise next(iter(gone.values()))
        mean = await everybodys_mean(node, x, "output")
        node.record(step=replica.steps, consensus=squared_distance(x, mean))
        replica.load(mean)


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
