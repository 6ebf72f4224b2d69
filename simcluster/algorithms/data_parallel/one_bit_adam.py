"""1-bit Adam: after a warm-up that learns the variance, momentum travels as signs, one bit per number.

Tang et al. 2021, algorithm 1. Adam is not linear in the gradient, so error feedback cannot make up for compressing its
gradients. But its variance v soon hardly changes: after a warm-up of ordinary Adam v is frozen. What remains is
momentum descent with a step size per weight, which tolerates compression: each rank sends the signs of its momentum,
chunk by chunk, and receives the signs of the mean (section 4.2), both with error feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from simcluster.algorithms.data_parallel.data_parallel_copies import one_bit_adam_copies
from simcluster.algorithms.facts import Facts, always, by_samples
from simcluster.algorithms.steps import resumable, steps
from simcluster.algorithms.timed import cost_of, timed
from simcluster.collectives import AllReduceSchedule, all_reduce
from simcluster.compression import Mean
from simcluster.transport import Transport
from simcluster.workloads import Replica
from simcluster.workloads.shares import weighed

Decay = Annotated[float, Field(ge=0, lt=1)]


@Facts(
    copies=one_bit_adam_copies, stays=lambda _: "each rank keeps a residual of the signs for each of the others",
    evenly=by_samples, float64=always, joins=always,
)  # fmt: skip
async def one_bit_adam(
    node: Transport,
    replica: Replica,
    *,
    warmup: PositiveInt = 20,
    beta1: Decay = 0.9,
    beta2: Decay = 0.999,
    epsilon: PositiveFloat = 1e-8,
    schedule: AllReduceSchedule = "ring",
) -> None:
    """Train with Adam for *warmup* steps, then with 1-bit Adam on all remaining batches.

    *beta1*, *beta2*: decays of momentum and variance. *epsilon*: the number added to the root of
    the variance. The learning rate is the workload's; its optimizer should be plain `sgd`, since it
    receives Adam's direction instead of a gradient. *schedule*: the schedule of the all-reduces
    during warm-up. A weight whose gradient was zero throughout the warm-up has no step size and
    keeps its value.
    """
    whole = Mean("none", node, "gradients", replica.parameters, partial(all_reduce, schedule=schedule))
    signs = Mean("sign", node, "momentum", replica.parameters, partial(all_reduce, schedule=schedule))
    zeros = [torch.zeros_like(parameter) for parameter in replica.parameters]
    state = resumable(replica, m=zeros, v=zeros, whole=whole, signs=signs)
    direction_cost = cost_of(_direction, zeros, zeros, 1.0, 1.0, epsilon)

    async for step, batch in steps(replica, keep=state):
        # g is the gradient of this rank's batch, weighted by its samples.
        loss, g = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        g = weighed(replica, g)

        if step <= warmup:
            # Warm-up: update m and v from the mean gradient.
            g = await state.whole(g, f"gradients/{step}")
            state.v = await timed(node, _blend_squares, state.v, g, beta2)
            state.m = await timed(node, _blend, state.m, g, beta1)
        else:
            # Compression: update m from this rank's gradient, then replace it by the mean of all
            # ranks' signs.
            m = await timed(node, _blend, state.m, g, beta1)
            state.m = await state.signs(m, f"momentum/{step}")

        # x <- x - gamma m / (sqrt(v) + epsilon), with both moments corrected for starting at zero.
        of_m, of_v = 1 - beta1**step, 1 - beta2 ** min(step, warmup)
        direction = await node.compute(_direction, state.m, state.v, of_m, of_v, epsilon, cost=direction_cost)
        await node.compute(replica.apply, direction, cost=replica.apply_cost())
        node.record(step=step, loss=loss)


def _blend(old: Sequence[Tensor], new: Sequence[Tensor], decay: float) -> list[Tensor]:
    """Return decay * old + (1 - decay) * new for each tensor."""
    return [before * decay + now * (1 - decay) for before, now in zip(old, new, strict=True)]


def _blend_squares(old: Sequence[Tensor], new: Sequence[Tensor], decay: float) -> list[Tensor]:
    return _blend(old, [now.square() for now in new], decay)


def _direction(m: Sequence[Tensor], v: Sequence[Tensor], of_m: float, of_v: float, epsilon: float) -> list[Tensor]:
    return [
        torch.where(second > 0, first / of_m / ((second / of_v).sqrt() + epsilon), torch.zeros_like(first))
        for first, second in zip(m, v, strict=True)
    ]
