"""The rounds of a server that also trains: like a worker's, without a network in between."""

from __future__ import annotations

import asyncio

from torch import Tensor

from simcluster.algorithms.local_steps.inner_steps import inner_steps
from simcluster.algorithms.local_steps.rounds import adopt, outer_gradient
from simcluster.algorithms.parameter_server.asynchronous import Server
from simcluster.algorithms.timed import timed
from simcluster.transport import Transport
from simcluster.workloads import Replica


async def own_rounds(
    node: Transport, replica: Replica, server: Server, steps: int, w: Tensor, version: int, pushed: int = 0
) -> None:
    """Run rounds of *steps* inner steps, or as many as the server answers, from *w*, of *version*, after *pushed*
    earlier ones.
    """
    clock, batches, done = asyncio.get_running_loop(), replica.batches(), replica.done
    while done < replica.steps:
        before, began_s = done, clock.time()
        done, loss = await inner_steps(node, replica, batches, done, steps)
        step_s = (clock.time() - began_s) / (done - before)
        delta = await timed(node, outer_gradient, w, replica.parameters)
        answer = await server.push(delta, version=version, step_s=step_s)
        w, version = answer.tensor, answer["version"]
        steps = answer["steps"] if "steps" in answer.payload.values else steps
        await timed(node, adopt, replica.parameters, w)
        pushed += 1
        await server.end_round(done, loss=loss, pushed=pushed)
