"""The arithmetic of rounds: what a replica has moved by, steps of outer optimizers, and weights put back.

All are pure but `adopt`, so that they can be timed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.collectives import flatten, unflatten


def outer_gradient(theta: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """theta - theta_i: how far *parameters* have moved from *theta*, turned so that descending it follows them."""
    return theta - flatten(parameters)


def nesterov(theta: Tensor, m: Tensor, delta: Tensor, lr: float, mu: float) -> tuple[Tensor, Tensor]:
    """(theta, m) after a step of *lr* with Nesterov's momentum *mu* (Sutskever et al. 2013); with *mu* 0 plain SGD."""
    m = mu * m + delta
    return theta - lr * (delta + mu * m), m


def delayed_nesterov(
    theta: Tensor, m: Tensor, gathered: Tensor, delta: Tensor, due: bool, epsilon: float, beta: float,
    N: int, spread: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(theta, m, what was gathered since m was last updated) after one arrival; with c = spread / N:

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
    """alpha (x - centre): what elastic averaging pulls x back by, and the centre along (Zhang et al. 2015)."""
    return alpha * (x - centre)


def pulled_by_all(centre: Tensor, total: Tensor, size: int, alpha: float) -> Tensor:
    """*centre* after the springs of *size* ranks, whose x sum to *total*."""
    return centre + alpha * (total - size * centre)


def adopt(parameters: Sequence[Tensor], vector: Tensor) -> None:
    """Overwrites *parameters*, in place, with the pieces of *vector*."""
    for mine, new in zip(parameters, unflatten(vector, parameters), strict=True):
        mine.copy_(new)
