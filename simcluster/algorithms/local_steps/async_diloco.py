"""Asynchronous DiLoCo: the server steps along every change as it arrives, and applies momentum only now and then.

Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": delayed Nesterov and dynamic local
updates. Momentum at every arrival makes stale changes worse; so its buffer is brought up to date
every N arrivals, with their mean. A worker that is k times as slow as the fastest makes a k-th of the steps a round,
rounded (the paper rounds down, which a clock that is not quite exact would make a step less for the fastest).
Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import torch
from annotated_types import Ge, Le, Lt
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.local_steps.facts import async_diloco_copies
from simcluster.algorithms.local_steps.inner_steps import inner_steps
from simcluster.algorithms.local_steps.rounds import adopt, delayed_nesterov, outer_gradient
from simcluster.algorithms.parameter_server.facts import served
from simcluster.algorithms.parameter_server.server import SERVER, reply_to, trainers
from simcluster.algorithms.parameter_server.serving import Rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Codec, Compression
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Group, Replica


@Facts(copies=async_diloco_copies, world=served(), exact=never)
async def async_diloco(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 20,
    dynamic: bool = True,
    outer_learning_rate: PositiveFloat = 0.7,
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9,
    delay: PositiveInt | None = None,
    spread: Annotated[float, Ge(0), Le(1)] = 0.0,
    compression: Compression = "none",
    server_trains: bool = True,
) -> None:
    """Rounds of *interval* inner steps (H) for the fastest rank; fewer for slower ones if *dynamic*.

    *delay*: arrivals between two updates of the momentum (N), by default as many as ranks train; with 1 it is
    Nesterov's at every arrival. *spread*: how much of the momentum is applied before the N-th arrival rather than at
    it, evenly (c N in the paper). *compression*: of the changes that workers send. *server_trains*: false for a server
    that only serves. A worker that is lost leaves the others to go on.
    """
    ranks = trainers(node.size, server_trains)
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank == SERVER:
        outer = outer_learning_rate, outer_momentum, delay or len(ranks), spread
        await _serve(node, replica, interval, dynamic, outer, codec, server_trains)
    else:
        await _work(node, replica, interval, codec)


async def _serve(
    node: Transport, replica: Replica, interval: int, dynamic: bool, outer: tuple[float, float, int, float],
    codec: Codec, server_trains: bool,
) -> None:  # fmt: skip
    theta = flatten(replica.parameters)
    m = gathered = torch.zeros_like(theta)
    theta, m, gathered, version, step_s = replica.restored(theta=theta, m=m, gathered=gathered, version=0, step_s={})
    done, updating = replica.done, asyncio.Lock()

    async def take(delta: Tensor, taken_at: int, rank: int, took_s: float, group: Group) -> int:
        """One change: applied. Returns how many steps *rank*, of which each *took_s*, is to take next."""
        nonlocal theta, m, gathered, version
        # Below 0 only of a worker that was kept later than the server.
        staleness, version = max(version - taken_at, 0), version + 1
        due = version % outer[2] == 0
        theta, m, gathered = await timed(node, delayed_nesterov, theta, m, gathered, delta, due, *outer)
        replica.ledger.take([group])
        if not server_trains:
            replica.load(unflatten(theta, replica.parameters))  # for whoever judges them: nobody trains on them
        node.record(step=done if server_trains else version, staleness=staleness, applied=version)
        step_s[rank] = took_s
        return max(round(interval * min(step_s.values()) / took_s), 1) if dynamic and took_s else interval

    async def keep(step: int) -> None:
        kept = {"theta": theta, "m": m, "gathered": gathered, "version": version, "step_s": step_s}
        await replica.checkpoint(step, batches=done, loose=True, **kept)

    async def train() -> None:
        """The server's own changes go through the same rules as everyone's."""
        nonlocal done
        batches, start, taken_at, steps, pushed = replica.batches(), theta, version, interval, 0
        while done < replica.steps:
            began_s = asyncio.get_running_loop().time()
            reached, loss = await inner_steps(node, replica, batches, done, steps)
            took_s = (asyncio.get_running_loop().time() - began_s) / (reached - done)
            delta = await timed(node, outer_gradient, start, replica.parameters)
            async with updating:
                steps = await take(delta, taken_at, SERVER, took_s, replica.ledger.hand_in(reached))
            start, taken_at = theta, version
            await timed(node, adopt, replica.parameters, start)
            done, pushed = reached, pushed + 1
            node.record(step=done, loss=loss, pushed=pushed)
            async with updating:
                await keep(done)
            rounds.look()

    rounds = Rounds(node, replica)
    async with asyncio.TaskGroup() as tasks:
        if server_trains:
            rounds.train(tasks, train())
        while (push := await rounds.next_push()) is not None:
            delta = flatten(await codec.restore(node, push.tensors))
            async with updating:
                group = replica.ledger.receive(push)
                steps = await take(delta, push["version"], push.source, push["step_s"], group)
                if not server_trains:
                    await keep(min(version * interval // (node.size - 1), replica.steps))
                tasks.create_task(reply_to(node, push.source, "answer", pack(theta, version=version, steps=steps)))
    await timed(node, adopt, replica.parameters, theta)


async def _work(node: Transport, replica: Replica, interval: int, codec: Codec) -> None:
    theta, version, steps, pushed, codec = replica.restored(
        theta=flatten(replica.parameters), version=0, steps=interval, pushed=0, codec=codec
    )
    batches, done = replica.batches(), replica.done
    while done < replica.steps:
        # Phase 1, inner: as many steps as the server asked for.
        before, began_s = done, asyncio.get_running_loop().time()
        done, loss = await inner_steps(node, replica, batches, done, steps)
        took_s = (asyncio.get_running_loop().time() - began_s) / (done - before)

        # Phase 2, push: what they changed, from which version of theta on, and how long each of them took.
        delta = await timed(node, outer_gradient, theta, replica.parameters)
        small = await codec.compress(node, unflatten(delta, replica.parameters))
        last = done == replica.steps
        replica.ledger.hand_in(done)
        await node.send(SERVER, "push", pack(*small, version=version, step_s=took_s, last=last))
        pushed += 1
        node.record(step=done, loss=loss, pushed=pushed)

        # Phase 3, pull: theta as it is now.
        message = await node.recv(SERVER, "answer")
        theta, version, steps = message.tensor, message["version"], message["steps"]
        await timed(node, adopt, replica.parameters, theta)
        counts = {"version": version, "steps": steps, "pushed": pushed}
        await replica.checkpoint(done, loose=True, theta=theta, codec=codec, **counts)
