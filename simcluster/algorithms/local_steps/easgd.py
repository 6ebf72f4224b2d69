"""Elastic averaging SGD: replicas explore on their own, tied to a common centre by a spring.

Zhang, Choromanska and LeCun 2015: the synchronous form and the asynchronous one (section 3, algorithm 1), and the
round-robin scheme of their analysis (section 4), in which the ranks meet the centre one after another. On
f = |x|^2/2 that is stable, for many ranks, iff 0 <= eta <= 2 and 0 <= alpha <= (4 - 2 eta) / (4 - eta).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.local_steps.facts import easgd_copies, easgd_world
from simcluster.algorithms.local_steps.rounds import adopt, pulled_by_all, spring
from simcluster.algorithms.parameter_server.server import SERVER, reply_to, trainers
from simcluster.algorithms.parameter_server.serving import Rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, ring_all_reduce
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


@Facts(
    copies=easgd_copies,
    world=easgd_world,
    exact=lambda settings: settings.get("form", "asynchronous") != "asynchronous",
    stays=lambda settings: "the centre goes round its ranks" if settings.get("form") == "round_robin" else "",
    spares="workers",
)
async def easgd(
    node: Transport,
    replica: Replica,
    *,
    form: Literal["asynchronous", "synchronous", "round_robin"] = "asynchronous",
    interval: PositiveInt = 4,
    beta: PositiveFloat = 0.9,
    server_trains: bool = True,
) -> None:
    """A rank meets the centre every *interval* steps (tau), and at its last one; the spring is alpha = *beta* / n.

    The centre is at rank 0 in the *form* asynchronous, which goes on without lost workers; at every rank alike in the
    synchronous; and goes round in the round-robin one. Rank 0 ends with the centre, the others with their own weights.
    *server_trains*: false if in the asynchronous form rank 0 only serves; n is then the number of the others.
    """
    ranks = trainers(node.size, server_trains or form != "asynchronous")
    if node.size == 1:
        await _train(node, replica, interval, None)
    elif form == "asynchronous" and node.rank == SERVER:
        await _serve(node, replica, interval, beta / len(ranks), server_trains)
    else:
        run = {"synchronous": _synchronous, "round_robin": _round_robin, "asynchronous": _work}[form]
        await run(node, replica, interval, beta / len(ranks))


async def _train(
    node: Transport, replica: Replica, interval: int, meet: Callable[[Tensor, int], Awaitable[Tensor]] | None,
    keep: Callable[[], dict[str, Any]] = dict, loose: bool = False,
) -> None:  # fmt: skip
    """x <- x - eta gradient(x) - alpha (x - centre): both terms are taken at the same x.

    *meet*: (x, step) -> alpha (x - centre), once the centre has moved as far towards x. *keep*: what to keep beside x.
    """
    for step, batch in enumerate(replica.batches(), start=1 + replica.done):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        if meet is not None and (step % interval == 0 or step == replica.steps):
            x = await timed(node, flatten, replica.parameters)
            force = await meet(x, step)
            await timed(node, adopt, replica.parameters, await timed(node, torch.sub, x, force))
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        node.record(step=step, loss=loss)
        await replica.checkpoint(step, loose=loose, **keep())


async def _synchronous(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    centre = replica.restored(centre=flatten(replica.parameters))

    async def meet(x: Tensor, step: int) -> Tensor:
        nonlocal centre
        # centre <- centre + alpha sum_i (x_i - centre), the same bits everywhere
        total = await ring_all_reduce(node, x, f"sum/{step}")
        force = await timed(node, spring, x, centre, alpha)
        centre = await timed(node, pulled_by_all, centre, total, node.size, alpha)
        return force

    await _train(node, replica, interval, meet, lambda: {"centre": centre})
    if node.rank == SERVER:
        await timed(node, adopt, replica.parameters, centre)


async def _round_robin(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    right, left = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    centre: Tensor | None = flatten(replica.parameters) if node.rank == 0 and not replica.done else None
    # Between two meetings the centre is on its way from the last rank to the first, whose turn comes when it is there.
    on_its_way: Tensor | None = replica.restored(on_its_way=None)
    if on_its_way is not None:
        await node.send(right, "centre", on_its_way)

    async def meet(x: Tensor, step: int) -> Tensor:
        nonlocal centre, on_its_way
        if centre is None:
            centre = (await node.recv(left, "centre")).tensor
        force = await timed(node, spring, x, centre, alpha)
        moved = await timed(node, torch.add, centre, force)
        await node.send(right, "centre", moved)
        centre, on_its_way = None, moved if right == 0 else None
        return force

    await _train(node, replica, interval, meet, lambda: {"on_its_way": on_its_way, "centre": centre})
    if node.rank == SERVER:
        await timed(node, adopt, replica.parameters, (await node.recv(left, "centre")).tensor)


async def _work(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    async def meet(x: Tensor, step: int) -> Tensor:
        await node.send(SERVER, "push", pack(x, last=step == replica.steps))
        node.record(step=step, pushed=-(-step // interval))
        return (await node.recv(SERVER, "answer")).tensor

    await _train(node, replica, interval, meet, loose=True)


async def _serve(node: Transport, replica: Replica, interval: int, alpha: float, trains: bool) -> None:
    centre, version, met_at = replica.restored(centre=flatten(replica.parameters), version=0, met_at={})
    moving = asyncio.Lock()

    async def take(x: Tensor, rank: int) -> Tensor:
        """In order of arrival. Staleness: how often others have moved the centre since *rank* met it."""
        nonlocal centre, version
        async with moving:
            force = await timed(node, spring, x, centre, alpha)
            centre = await timed(node, torch.add, centre, force)
            staleness, met_at[rank], version = version - met_at.get(rank, 0), version + 1, version + 1
            node.record(step=version, staleness=staleness, applied=version)
            return force

    async def meet(x: Tensor, step: int) -> Tensor:
        node.record(step=step, pushed=-(-step // interval))
        rounds.look()
        return await take(x, SERVER)

    def kept() -> dict[str, Any]:
        return {"centre": centre, "version": version, "met_at": met_at}

    rounds = Rounds(node, replica)
    async with asyncio.TaskGroup() as tasks:
        if trains:
            rounds.train(tasks, _train(node, replica, interval, meet, kept, loose=True))
        while (push := await rounds.next_push()) is not None:
            tasks.create_task(reply_to(node, push.source, "answer", pack(await take(push.tensor, push.source))))
            if not trains:
                step = min(version * interval // (node.size - 1), replica.steps)
                await replica.checkpoint(step, batches=0, loose=True, **kept())
    await timed(node, adopt, replica.parameters, centre)
