"""Asynchronous DiLoCo: the server takes a step for every change on arrival, but updates its
momentum only at every N-th.

Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling": delayed Nesterov and
dynamic local updates. Momentum at every arrival amplifies stale changes, so its buffer is updated
every N arrivals, with their mean. A worker k times as slow as the fastest takes 1/k of the steps
per round, rounded (the paper rounds down, which an inexact clock would turn into one step fewer for
the fastest). Rank 0 serves, and also trains by default. With a quorum, changes are merged round by
round, as in Decoupled DiLoCo (Douillard et al. 2026).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated

from annotated_types import Ge, Le, Lt
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.local_steps.local_step_copies import async_diloco_copies
from simcluster.algorithms.local_steps.own_rounds import inner_steps, own_rounds
from simcluster.algorithms.local_steps.quorum import mean_change, merges, quorum_world
from simcluster.algorithms.local_steps.rounds import adopt, delayed_nesterov, nesterov, outer_gradient
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_to_server
from simcluster.algorithms.parameter_server.server import SERVER, Push, trainers
from simcluster.algorithms.parameter_server.server_copies import drawn_by_all
from simcluster.algorithms.parameter_server.serving import PushRounds
from simcluster.algorithms.steps import resumable
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Codec, Compression
from simcluster.payload import lend, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed


@Facts(
    copies=async_diloco_copies, world=quorum_world, exact=never, spares="workers", evenly=drawn_by_all,
    running="server",
)  # fmt: skip
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
    quorum: PositiveInt | None = None,
    grace_s: NonNegativeFloat | None = None,
) -> None:
    """Run rounds of *interval* inner steps (H) on the fastest rank, and fewer on slower ranks if
    *dynamic*.

    *delay*: the number of arrivals between two updates of the momentum (N), by default the number
    of training ranks; 1 is Nesterov at every arrival. *spread*: the share of the momentum applied
    evenly before the N-th arrival instead of at it (c N in the paper). *compression*: the
    compression of the changes that workers send. *server_trains*: whether the server also trains.
    *quorum*: the number of changes after which the server waits no longer than *grace_s* for the
    others; it then takes one step of Nesterov along the mean, weighted by samples, instead of a
    step per arrival. A late change is merged in the next step. *grace_s*: None waits for all ranks
    that are left, which is synchronous DiLoCo. Ranks survive the loss of a worker.
    """
    ranks = trainers(node.size, server_trains)
    codec = Codec(compression, node.rng, "push", replica.parameters)
    if node.rank == SERVER:
        outer = outer_learning_rate, outer_momentum, delay or len(ranks), spread
        waits = None if quorum is None else (ranks, quorum, grace_s)
        await _serve(node, replica, interval, dynamic, outer, codec, server_trains, waits)
    else:
        await _work(node, replica, interval, codec, counts=quorum is not None)


async def _serve(
    node: Transport, replica: Replica, interval: int, dynamic: bool, outer: tuple[float, float, int, float],
    codec: Codec, server_trains: bool, waits: tuple[Sequence[int], int, float | None] | None,
) -> None:  # fmt: skip
    theta = flatten(replica.parameters)
    m = gathered = theta.new_zeros(len(theta))
    state = resumable(replica, theta=theta, m=m, gathered=gathered, version=0, step_s={}, applied=0)
    state.applied = state.applied or state.version  # older checkpoints have no applied

    async with PushServer(node, replica, PushRounds(node, replica), "answer", keep=state, codec=codec) as server:
        if server_trains:
            server.train(own_rounds(node, replica, server, interval, state.theta, state.version, weighs=waits is None))
        async with aclosing(_arrivals(server) if waits is None else merges(node, replica, server, *waits)) as arrivals:
            async for pushes in arrivals:
                # Phase 1, outer step: for every change, in order of arrival, or for every merge.
                stale = [server.staleness(push) for push in pushes]
                delta = mean_change(replica, pushes)
                if waits is None:
                    due = (state.version + 1) % outer[2] == 0
                    gathered = state.gathered
                    outer_step = timed(node, delayed_nesterov, state.theta, state.m, gathered, delta, due, *outer)
                    state.theta, state.m, state.gathered = await outer_step
                else:
                    state.theta, state.m = await timed(node, nesterov, state.theta, state.m, delta, *outer[:2])
                state.version, state.applied = state.version + 1, state.applied + len(pushes)
                server.take(pushes)
                if not server_trains:
                    replica.load(unflatten(state.theta, replica.parameters))  # for evaluation only
                step = server.done if server_trains else state.applied
                for staleness in stale:
                    node.record(step=step, staleness=staleness, applied=state.applied)

                # Phase 2, local updates: as many inner steps as the rank completes in the time of the fastest one's H.
                state.step_s |= {push.rank: push["step_s"] for push in pushes}
                if not server_trains:
                    await server.keep(state.applied * interval // (node.size - 1), batches=server.done)
                for push in pushes:
                    took_s = push["step_s"]
                    steps = round(interval * min(state.step_s.values()) / took_s) if dynamic and took_s else interval
                    server.answer(push, pack(state.theta, version=state.version, steps=max(steps, 1)))
    await timed(node, adopt, replica.parameters, state.theta)


async def _arrivals(server: PushServer) -> AsyncGenerator[list[Push]]:
    async for push in server.pushes():
        yield [push]


async def _work(node: Transport, replica: Replica, interval: int, codec: Codec, *, counts: bool) -> None:
    theta, version, steps, pushed, codec = replica.restored(
        theta=flatten(replica.parameters), version=0, steps=interval, pushed=0, codec=codec
    )
    batches, done = replica.batches(), replica.done
    while done < replica.steps:
        # Phase 1, inner: the number of steps that the server asked for.
        before = done
        done, loss, took_s = await inner_steps(node, replica, batches, done, steps)

        # Phase 2, push: the change, the version of theta that it started from, and the time per step.
        delta = await timed(node, outer_gradient, theta, replica.parameters)
        change = unflatten(delta, replica.parameters)
        small = await codec.compress(node, change if counts else weighed(replica, change))
        last = done == replica.steps
        trained = {"trained": done - before} if counts else {}
        await push_to_server(node, replica, lend(*small, version=version, step_s=took_s, last=last, **trained))
        pushed += 1
        node.record(step=done, loss=loss, pushed=pushed)

        # Phase 3, pull: the current theta.
        message = await node.recv(SERVER, "answer")
        theta = message.tensor
        version = message["version"]
        steps = message["steps"]
        await timed(node, adopt, replica.parameters, theta)
        numbers = {"version": version, "steps": steps, "pushed": pushed}
        await replica.checkpoint(done, loose=True, theta=theta, codec=codec, **numbers)
