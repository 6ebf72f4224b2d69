"""FedBuff: workers train without waiting for each other; the server steps whenever K of their changes have arrived.

Nguyen et al. 2022, algorithm 1, without secure aggregation. Staleness is the number of server steps between a worker's
download and the arrival of its change; changes are scaled by 1 / sqrt(1 + staleness). Rank 0 serves, and also trains by
default.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.facts import Facts, never
from simcluster.algorithms.local_steps.facts import fedbuff_copies
from simcluster.algorithms.local_steps.own_rounds import own_rounds
from simcluster.algorithms.local_steps.rounds import adopt, outer_gradient, train_alone
from simcluster.algorithms.parameter_server.asynchronous import Server, push_to_server
from simcluster.algorithms.parameter_server.facts import served
from simcluster.algorithms.parameter_server.server import SERVER, trainers
from simcluster.algorithms.parameter_server.serving import Rounds
from simcluster.algorithms.steps import resumable, rounds
from simcluster.algorithms.timed import timed
from simcluster.collectives import flatten, unflatten
from simcluster.compression import Codec, Compression
from simcluster.payload import give, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


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
    """Rounds of *interval* steps (Q) on each rank, and a server step per *buffer* (K) changes, at most one per rank.

    *server_learning_rate*: eta_g. *damping*: `root` divides a change by sqrt(1 + staleness). *max_staleness*: the
    server rejects staler changes; None accepts all. *compression*: of what workers send. *server_trains*: false for a
    server that only serves. What is left in the buffer makes a last, smaller step. Ranks survive the loss of a worker.
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
    state = resumable(replica, w=w, gathered=torch.zeros_like(w), version=0, held=0, applied=0, rejected=0)

    async def step() -> None:
        """Take the step w <- w - eta_g times the buffer's mean."""
        state.w = await timed(node, _step, state.w, state.gathered, server_learning_rate, state.held)
        server.take()
        state.gathered, state.version = torch.zeros_like(state.w), state.version + 1
        state.applied, state.held = state.applied + state.held, 0
        if not server_trains:
            replica.load(unflatten(state.w, replica.parameters))  # for evaluation only
            server.done = state.version

    async with Server(node, replica, Rounds(node, replica), "answer", keep=state, codec=codec) as server:
        if server_trains:
            pushed = -(-replica.done // interval)
            server.train(own_rounds(node, replica, server, interval, state.w, state.version, pushed))
        async for push in server.pushes():
            # Phase 1, gather, in order of arrival: scale and add a change unless it is too stale.
            staleness = server.staleness(push)
            if max_staleness is not None and staleness > max_staleness:
                state.rejected += 1
            else:
                age = staleness if damping == "root" else 0
                state.gathered = await timed(node, _gather, state.gathered, flatten(push.tensors), age)
                state.held += 1
                server.hold(push)
                # Phase 2, step: once K changes have arrived.
                if state.held == K:
                    await step()
            node.record(step=server.done, staleness=staleness, applied=state.applied, rejected=state.rejected)

            # Phase 3, pull: the current weights.
            server.answer(push, pack(state.w, version=state.version))
            if not server_trains:
                changes = state.applied + state.held + state.rejected
                await server.keep(changes * interval // (node.size - 1), batches=server.done)
    if state.held:
        await step()
    await timed(node, adopt, replica.parameters, state.w)
    node.record(step=server.done, applied=state.applied)


async def _work(node: Transport, replica: Replica, interval: int, codec: Codec) -> None:
    state = resumable(replica, w=flatten(replica.parameters), version=0, codec=codec)
    async for done, batches in rounds(replica, interval, keep=state, loose=True):
        # Phase 1, train: Q steps from the server's weights.
        loss = await train_alone(node, replica, batches)

        # Phase 2, push: the change, and the version of the weights that it started from.
        delta = await timed(node, outer_gradient, state.w, replica.parameters)
        small = await codec.compress(node, unflatten(delta, replica.parameters))
        await push_to_server(node, replica, give(*small, version=state.version, last=done == replica.steps))
        node.record(step=done, loss=loss, pushed=-(-done // interval))

        # Phase 3, pull: the current weights.
        message = await node.recv(SERVER, "answer")
        state.w, state.version = message.tensor, message["version"]
        await timed(node, adopt, replica.parameters, state.w)


def _gather(gathered: Tensor, delta: Tensor, staleness: int) -> Tensor:
    return gathered + delta.mul((1 + staleness) ** -0.5)


def _step(w: Tensor, gathered: Tensor, eta: float, number: int) -> Tensor:
    return w - eta * gathered / number
