"""The parts of a round: local steps, outer gradients, steps of outer optimizers, and loading weights.

The arithmetic, except for `adopt`, is pure, so that it can be timed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica

Correction = Callable[[list[Tensor]], Awaitable[list[Tensor]]]


async def train_alone(
    node: Transport, replica: Replica, batches: Iterable[Batch], corrected: Correction | None = None
) -> float:
    """Take one local optimizer step per batch, with *corrected* gradients. Return the mean loss.

    Nothing is recorded here: a record would evaluate rank 0's weights, which within a round are not
    the shared model.
    """
    total, count = 0.0, 0
    for batch in batches:
        loss, gradients = await node.compute(replica.loss_and_gradients, batch, cost=replica.gradient_cost(batch))
        if corrected is not None:
            gradients = await corrected(gradients)
        await node.compute(replica.apply, gradients, cost=replica.apply_cost())
        total, count = total + loss, count + 1
    return total / count


def changed(x: Tensor, parameters: Sequence[Tensor], weight: float) -> Tensor:
    return (flatten(parameters) - x) * weight


def outer_gradient(theta: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return theta - theta_i: the movement of *parameters* from *theta*, with the sign of a gradient."""
    return theta - flatten(parameters)


def nesterov(theta: Tensor, m: Tensor, delta: Tensor, lr: float, mu: float) -> tuple[Tensor, Tensor]:
    """Return (theta, m) after a step with learning rate *lr* and Nesterov momentum *mu* (Sutskever
    et al. 2013). A momentum of 0 is plain SGD.
    """
    m = mu * m + delta
    return theta - lr * (delta + mu * m), m


def delayed_nesterov(
    theta: Tensor, m: Tensor, gathered: Tensor, delta: Tensor, due: bool, epsilon: float, beta: float,
    N: int, spread: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (theta, m, the changes gathered since m's last update) after one arrival; with c = spread / N:

    due:      m <- beta m + gathered / N;  theta <- theta - epsilon ((1 - c N + c) beta m + delta / N)
    not due:                               theta <- theta - epsilon (c beta m + delta / N)

    Liu et al. 2024, algorithm 3.
    """
    gathered, c = gathered + delta, spread / N
    if due:
        m, gathered = beta * m + gathered / N, torch.zeros_like(gathered)
    share = 1 - c * N + c if due else c
    return theta - epsilon * (share * beta * m + delta / N), m, gathered


def spring(x: Tensor, centre: Tensor, alpha: float) -> Tensor:
    """Return the force alpha (x - centre), which elastic averaging subtracts from x and adds to the
    centre (Zhang et al. 2015).
    """
    return alpha * (x - centre)


def pulled_by_all(centre: Tensor, total: Tensor, size: int, alpha: float) -> Tensor:
    """Return *centre* after the pull of *size* ranks, where *total* is the sum of their x."""
    return centre + alpha * (total - size * centre)


def adopt(parameters: Sequence[Tensor], vector: Tensor) -> None:
    """Overwrite *parameters*, in place, with the pieces of *vector*."""
    for mine, new in zip(parameters, unflatten(vector, parameters), strict=True):
        mine.copy_(new)
