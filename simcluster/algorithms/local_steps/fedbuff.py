"""FedBuff: workers train on their own and nobody waits for anybody; the server steps once K of their changes are there.

Nguyen et al. 2022, algorithm 1, without secure aggregation. Staleness is the number of steps that the server made
between a worker's download and the arrival of what it made of it; changes are scaled down by 1 / sqrt(1 + staleness).
Rank 0 serves, and trains as well unless told not to.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.local_steps.facts import fedbuff_copies
from simcluster.algorithms.local_steps.inner_steps import inner_steps
from simcluster.algorithms.local_steps.rounds import adopt, outer_gradient
from simcluster.algorithms.parameter_server.facts import served
from simcluster.algorithms.parameter_server.server import SERVER, reply_to, trainers
from simcluster.algorithms.parameter_server.serving import Rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Codec, Compression
from simcluster.payload import pack
from simcluster.transport import Transport
from simcluster.workloads import Group, Replica


@Facts(copies=fedbuff_copies, world=served(), exact=never)
async def fedbuff(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 10,
    buffer: PositiveInt = 2,
    server_learning_rate: PositiveFloat = 1.0,
    damping: Literal["none", "root"] = "root",
    max_staleness: NonNegativeInt | None = None,
    compression: Compression = "none",
    server_trains: bool = True,
) -> None:
    """Rounds of *interval* steps (Q) on each rank, and a step of the server for *buffer* (K) changes, at most one each.

    *server_learning_rate*: eta_g. *damping*: `root` divides a change by sqrt(1 + staleness). *max_staleness*: the
    server rejects changes staler than this; None takes all. *compression*: of what workers send. The rest of the buffer
    is a last, smaller step. *server_trains*: false for a server that only serves. Who is lost is not missed.
    """
    K = min(buffer, len(trainers(node.size, server_trains)))
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank == SERVER:
        await _serve(node, replica, interval, K, server_learning_rate, damping, max_staleness, codec, server_trains)
    else:
        await _work(node, replica, interval, codec)


async def _serve(
    node: Transport, replica: Replica, interval: int, K: int, server_learning_rate: float, damping: str,
    max_staleness: int | None, codec: Codec, server_trains: bool,
) -> None:  # fmt: skip
    w = flatten(replica.parameters)
    w, gathered = replica.restored(w=w, gathered=torch.zeros_like(w))
    version, held, applied, rejected = replica.restored(version=0, held=0, applied=0, rejected=0)
    done, updating = replica.done, asyncio.Lock()

    async def take(delta: Tensor, taken_at: int, group: Group) -> None:
        """One change: judged, scaled, put into the buffer, unless it is too stale."""
        nonlocal gathered, held, rejected
        staleness = max(version - taken_at, 0)  # below 0 only of a worker that was kept later than the server
        if max_staleness is not None and staleness > max_staleness:
            rejected += 1
        else:
            gathered = await timed(node, _gather, gathered, delta, staleness if damping == "root" else 0)
            held += 1
            replica.ledger.hold(group)
            if held == K:
                await step()
        node.record(step=done, staleness=staleness, applied=applied, rejected=rejected)

    async def step() -> None:
        """w <- w - eta_g times the buffer's mean."""
        nonlocal w, gathered, version, held, applied, done
        w = await timed(node, _step, w, gathered, server_learning_rate, held)
        replica.ledger.take(replica.ledger.held)
        gathered, version, applied, held = torch.zeros_like(w), version + 1, applied + held, 0
        if not server_trains:
            replica.load(unflatten(w, replica.parameters))  # for whoever judges them: nobody trains on them
            done = version

    async def keep(step: int) -> None:
        counts = {"version": version, "held": held, "applied": applied, "rejected": rejected}
        await replica.checkpoint(step, batches=done, loose=True, w=w, gathered=gathered, **counts)

    async def train() -> None:
        """The server's own changes go through the same rules as everyone's."""
        nonlocal done
        batches, start, taken_at = replica.batches(), w, version
        while done < replica.steps:
            reached, loss = await inner_steps(node, replica, batches, done, interval)
            delta = await timed(node, outer_gradient, start, replica.parameters)
            async with updating:
                await take(delta, taken_at, replica.ledger.hand_in(reached))
            start, taken_at = w, version
            await timed(node, adopt, replica.parameters, start)
            done = reached
            node.record(step=done, loss=loss, pushed=-(-done // interval))
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
                await take(delta, push["version"], replica.ledger.receive(push))
                tasks.create_task(reply_to(node, push.source, "answer", pack(w, version=version)))
                if not server_trains:
                    await keep(min((applied + held + rejected) * interval // (node.size - 1), replica.steps))
    if held:
        await step()
    await timed(node, adopt, replica.parameters, w)
    node.record(step=done, applied=applied)


async def _work(node: Transport, replica: Replica, interval: int, codec: Codec) -> None:
    w, version, codec = replica.restored(w=flatten(replica.parameters), version=0, codec=codec)
    batches, done = replica.batches(), replica.done
    while done < replica.steps:
        # Phase 1, train: Q steps from the server's weights.
        done, loss = await inner_steps(node, replica, batches, done, interval)

        # Phase 2, push: what they changed, and the version of the weights that they began from.
        delta = await timed(node, outer_gradient, w, replica.parameters)
        replica.ledger.hand_in(done)
        small = await codec.compress(node, unflatten(delta, replica.parameters))
        await node.send(SERVER, "push", pack(*small, version=version, last=done == replica.steps))
        node.record(step=done, loss=loss, pushed=-(-done // interval))

        # Phase 3, pull: the weights as they are now.
        message = await node.recv(SERVER, "answer")
        w, version = message.tensor, message["version"]
        await timed(node, adopt, replica.parameters, w)
        await replica.checkpoint(done, loose=True, w=w, version=version, codec=codec)


def _gather(gathered: Tensor, delta: Tensor, staleness: int) -> Tensor:
    return gathered + delta.mul((1 + staleness) ** -0.5)


def _step(w: Tensor, gathered: Tensor, eta: float, number: int) -> Tensor:
    return w - eta * gathered / number
