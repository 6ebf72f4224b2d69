"""Streaming DiLoCo: the parameters in fragments that are synchronised in turn, while training goes on.

Douillard et al. 2025, algorithm 2. Each fragment is synchronised every H steps, at a time of its own, so a peak of
traffic is a fragment's. What a synchronisation brings is awaited tau steps after it began, and blended with what the
replica has become meanwhile: alpha of the latter. With one fragment, no overlap and alpha 0 it is DiLoCo.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.declared import in_step
from simcluster.algorithms.local_steps.rounds import adopt, nesterov
from simcluster.algorithms.timed import timed
from simcluster.collectives import all_reduce, flatten
from simcluster.compression import Compression, Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica


@in_step
async def streaming_diloco(
    node: Transport,
    replica: Replica,
    *,
    interval: PositiveInt = 20,
    fragments: PositiveInt = 4,
    overlap: NonNegativeInt = 1,
    blend: Annotated[float, Ge(0), Lt(1)] = 0.5,
    outer_learning_rate: PositiveFloat = 0.7,
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9,
    schedule: Literal["ring", "naive", "direct", "binomial", "recursive_doubling", "halving_doubling"] = "ring",
    compression: Compression = "none",
) -> None:
    """*fragments* (P) equal pieces of all parameters end to end, each synchronised every *interval* steps (H).

    *overlap* (tau): inner steps between the start of a fragment's synchronisation and its end, at most H. *blend*
    (alpha): how much of a replica's own weights stays; at the end of the run nothing does. *schedule*: of the
    all-reduces. *compression*: of the outer gradients that travel.
    """
    theta = list(flatten(replica.parameters).tensor_split(fragments))
    m = [torch.zeros_like(piece) for piece in theta]
    by_schedule = partial(all_reduce, schedule=schedule)
    mean = [Mean(compression, node, f"fragment {p}", [piece], by_schedule) for p, piece in enumerate(theta)]
    theta, m, mean, kept = replica.restored(theta=theta, m=m, mean=mean, under_way={})
    under_way: dict[int, tuple[int, asyncio.Future[list[Tensor]]]] = {}
    for p, (until, deltas) in kept.items():
        under_way[p] = until, asyncio.get_running_loop().create_future()
        under_way[p][1].set_result(deltas)

    async def begin(p: int, step: int) -> None:
        """Fragment p's outer gradient is taken now, and averaged while training goes on."""
        moved = await timed(node, _moved, theta[p], replica.parameters, fragments, p)
        under_way[p] = step + overlap, group.create_task(mean[p]([moved], f"fragment{p}/{step}"))

    async def end(p: int, alpha: float) -> None:
        """Fragment p's outer step, and alpha of what the replica has become meanwhile."""
        (delta,) = await under_way.pop(p)[1]
        theta[p], m[p] = await timed(node, nesterov, theta[p], m[p], delta, outer_learning_rate, outer_momentum)
        await timed(node, _blend, replica.parameters, theta[p], fragments, p, alpha)

    async with asyncio.TaskGroup() as group:
        for step, batch in enumerate(replica.batches(), start=1 + replica.done):
            # Phase 1, inner: a step of this replica's own optimizer.
            loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
            await node.compute(replica.apply, gradients, cost=replica.apply_cost())

            # Phase 2, outer: fragments end what they began tau steps ago, and begin when their turn comes.
            last = step == replica.steps
            due = [p for p in range(fragments) if last or (step + p * interval // fragments) % interval == 0]
            over = [p for p, (until, _) in under_way.items() if step >= until or p in due]
            for p in over:
                await end(p, blend)
            for p in due:
                await begin(p, step)
            if last or not overlap:
                for p in due:
                    await end(p, 0.0 if last else blend)
            node.record(step=step, loss=loss)
            keeping = replica.is_due(step)  # only then are those under way waited for
            kept = {p: (until, await delta) for p, (until, delta) in under_way.items()} if keeping else {}
            # In a group that is formed anew nothing is under way: a fragment is averaged in its next turn.
            landed, apart = step if over or (due and not under_way) else 0, -(-overlap * fragments // interval)
            await replica.checkpoint(step, landed=landed, apart=apart, theta=theta, m=m, mean=mean, under_way=kept)


def _moved(theta: Tensor, parameters: list[Tensor], fragments: int, p: int) -> Tensor:
    return theta - flatten(parameters).tensor_split(fragments)[p]


def _blend(parameters: list[Tensor], theta: Tensor, fragments: int, p: int, alpha: float) -> None:
    """Fragment p of *parameters* becomes alpha of itself and 1 - alpha of *theta*."""
    x = flatten(parameters)
    piece = x.tensor_split(fragments)[p]
    piece.copy_(theta.lerp(piece, alpha))
    adopt(parameters, x)
