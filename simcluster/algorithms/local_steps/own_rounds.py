"""Rounds of a worker, which the server answers, and rounds of a server that also trains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice

from torch import Tensor

from simcluster.algorithms.local_steps.rounds import adopt, outer_gradient, train_alone
from simcluster.algorithms.parameter_server.asynchronous import PushServer, push_to_server
from simcluster.algorithms.timed import timed
from simcluster.collectives import unflatten
from simcluster.compression import Codec
from simcluster.payload import lend
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica
from simcluster.workloads.shares import weighed


async def inner_steps(
    node: Transport, replica: Replica, batches: Iterator[Batch], step: int, count: int
) -> tuple[int, float, float]:
    """Take *count* steps after *step*, or fewer if the batches run out.

    Return (last step, mean loss, seconds per step).
    """
    clock, last = asyncio.get_running_loop(), min(step + count, replica.steps)
    began_s = clock.time()
    loss = await train_alone(node, replica, islice(batches, last - step))
    return last, loss, (clock.time() - began_s) / (last - step)


async def own_rounds(
    node: Transport, replica: Replica, server: PushServer, steps: int, w: Tensor, version: int, pushed: int = 0,
    *, weighs: bool = True,
) -> None:  # fmt: skip
    """Run the rounds of a server that trains, from weights *w* of *version*, after *pushed* earlier
    rounds.

    The first round takes *steps* inner steps; the server's answer may set another number for the
    following rounds. *weighs*: whether a push is weighted by samples here, not by the server.
    """
    batches, done = replica.batches(), replica.done
    while done < replica.steps:
        before = done
        done, loss, step_s = await inner_steps(node, replica, batches, done, steps)
        delta = await timed(node, outer_gradient, w, replica.parameters)
        counts = {"trained": done - before, "last": done == replica.steps}
        push = weighed(replica, [delta]) if weighs else [delta]
        answer = await server.push(*push, version=version, step_s=step_s, **counts)
        w, version = answer.tensor, answer["version"]
        steps = answer["steps"] if "steps" in answer.payload.values else steps
        await timed(node, adopt, replica.parameters, w)
        pushed += 1
        await server.end_round(done, loss=loss, pushed=pushed)


async def train_and_push(
    node: Transport, replica: Replica, interval: int, done: int, batches: Iterable[Batch], w: Tensor, version: int,
    codec: Codec,
) -> None:  # fmt: skip
    """Train the round that ends at step *done*, starting from weights *w* of *version*, and push
    the change to the server.
    """
    # Phase 1, train: Q steps from the server's weights.
    loss = await train_alone(node, replica, batches)

    # Phase 2, push: the change, and the version of the weights that it started from.
    delta = await timed(node, outer_gradient, w, replica.parameters)
    small = await codec.compress(node, weighed(replica, unflatten(delta, replica.parameters)))
    await push_to_server(node, replica, lend(*small, version=version, last=done == replica.steps))
    node.record(step=done, loss=loss, pushed=-(-done // interval))
