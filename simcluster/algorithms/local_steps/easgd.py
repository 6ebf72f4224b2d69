"""Elastic averaging SGD: replicas explore on their own, tied to a common centre by a spring.

Zhang, Choromanska and LeCun 2015: the synchronous and the asynchronous form (section 3, algorithm 1), and the
round-robin scheme of their analysis (section 4), in which ranks meet the centre one after another. On f = |x|^2/2 that
scheme is stable, for many ranks, iff 0 <= eta <= 2 and 0 <= alpha <= (4 - 2 eta) / (4 - eta).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts
from simcluster.algorithms.local_steps.local_step_copies import easgd_copies
from simcluster.algorithms.local_steps.rounds import adopt, pulled_by_all, spring
from simcluster.algorithms.parameter_server.asynchronous import PushServer
from simcluster.algorithms.parameter_server.server import SERVER, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all
from simcluster.algorithms.parameter_server.serving import PushRounds
from simcluster.algorithms.steps import resumable, steps
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, ring_all_reduce
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(
    copies=easgd_copies,
    world=lambda size, settings: trainers(size, settings["server_trains"] or settings["form"] != "asynchronous"),
    exact=lambda settings: settings.get("form", "asynchronous") != "asynchronous",
    stays=lambda settings: "the centre travels around its ranks" if settings.get("form") == "round_robin" else "",
    spares="workers",
    evenly=lambda settings: drawn_by_all(settings) if settings.get("form", "asynchronous") == "asynchronous" else "",
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
    """Train on every rank; each rank meets the centre every *interval* steps (tau) and at its last
    step.

    The spring constant is alpha = *beta* / n for n training ranks. *form*: in `asynchronous`, rank
    0 holds the centre and survives the loss of workers; in `synchronous`, every rank holds the same
    centre; in `round_robin`, the centre travels from rank to rank. Rank 0 ends with the centre, all
    others with their own weights. *server_trains*: whether rank 0 also trains in the asynchronous
    form; if not, n excludes rank 0.
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
    keep: SimpleNamespace | None = None, loose: bool = False,
) -> None:  # fmt: skip
    """Step x <- x - eta gradient(x) - alpha (x - centre), with both terms taken at the same x.

    *meet* takes (x, step), moves the centre towards x by the force alpha (x - centre), and returns
    that force. A checkpoint saves *keep* along with the weights.
    """
    async for step, batch in steps(replica, keep=keep, loose=loose):
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        if meet is not None and (step % interval == 0 or step == replica.steps):
            x = await timed(node, flatten, replica.parameters)
            force = await meet(x, step)
            await timed(node, adopt, replica.parameters, await timed(node, torch.sub, x, force))
        await node.compute(replica.apply, weighed(replica, gradients), cost=replica.apply_cost())
        node.record(step=step, loss=loss)


async def _synchronous(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    state = resumable(replica, centre=flatten(replica.parameters))

    async def meet(x: Tensor, step: int) -> Tensor:
        # centre <- centre + alpha sum_i (x_i - centre), bit-identical on all ranks
        total = await ring_all_reduce(node, x, f"sum/{step}")
        force = await timed(node, spring, x, state.centre, alpha)
        state.centre = await timed(node, pulled_by_all, state.centre, total, node.size, alpha)
        return force

    await _train(node, replica, interval, meet, state)
    if node.rank == SERVER:
        await timed(node, adopt, replica.parameters, state.centre)


async def _round_robin(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    right, left = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    # Between two rounds of meetings the centre travels from the last rank to the first, which meets
    # it next.
    state = resumable(replica, on_its_way=None, centre=flatten(replica.parameters) if node.rank == 0 else None)
    if state.on_its_way is not None:
        await node.send(right, "centre", state.on_its_way)

    async def meet(x: Tensor, step: int) -> Tensor:
        centre = state.centre if state.centre is not None else (await node.recv(left, "centre")).tensor
        force = await timed(node, spring, x, centre, alpha)
        moved = await timed(node, torch.add, centre, force)
        await node.send(right, "centre", moved)
        state.centre, state.on_its_way = None, moved if right == 0 else None
        return force

    await _train(node, replica, interval, meet, state)
    if node.rank == SERVER:
        await timed(node, adopt, replica.parameters, (await node.recv(left, "centre")).tensor)


async def _work(node: Transport, replica: Replica, interval: int, alpha: float) -> None:
    async def meet(x: Tensor, step: int) -> Tensor:
        await node.send(SERVER, "push", pack(x, last=step == replica.steps))
        node.record(step=step, pushed=-(-step // interval))
        return (await node.recv(SERVER, "answer")).tensor

    await _train(node, replica, interval, meet, loose=True)


async def _serve(node: Transport, replica: Replica, interval: int, alpha: float, trains: bool) -> None:
    state = resumable(replica, centre=flatten(replica.parameters), version=0, met_at={})

    async def meet(x: Tensor, step: int) -> Tensor:
        node.record(step=step, pushed=-(-step // interval))
        server.look()
        return (await server.push(x)).tensor

    async with PushServer(node, replica, PushRounds(node, replica), "answer", keep=state, judges=False) as server:
        if trains:
            server.train(_train(node, replica, interval, meet, state, loose=True))
        async for push in server.pushes():
            # Pushes are handled in order of arrival. The staleness is the number of times that
            # other ranks have moved the centre since this rank last met it.
            (x,) = push.tensors
            force = await timed(node, spring, x, state.centre, alpha)
            state.centre = await timed(node, torch.add, state.centre, force)
            staleness, state.version = state.version - state.met_at.get(push.rank, 0), state.version + 1
            state.met_at[push.rank] = state.version
            node.record(step=state.version, staleness=staleness, applied=state.version)
            server.answer(push, pack(force))
            if not trains:
                await server.keep(state.version * interval // (node.size - 1), batches=0)
    await timed(node, adopt, replica.parameters, state.centre)
