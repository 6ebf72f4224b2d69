"""The arithmetic of rounds: what a replica has moved by, the outer optimizer's step, and weights put back.

This file knows vectors. It must not know ranks or messages. All are pure but `adopt`, so that they can be timed.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simcluster.collectives import flatten, unflatten


def outer_gradient(theta: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """theta - theta_i: how far *parameters* have moved from *theta*, turned so that descending it follows them."""
    return theta - flatten(parameters)


def nesterov(theta: Tensor, m: Tensor, delta: Tensor, lr: float, mu: float) -> tuple[Tensor, Tensor]:
    """(theta, m) after a step of *lr* with Nesterov's momentum *mu* (Sutskever et al. 2013); with *mu* 0 plain SGD."""
    m = mu * m + delta
    return theta - lr * (delta + mu * m), m


def adopt(parameters: Sequence[Tensor], vector: Tensor) -> None:
    """Overwrites *parameters*, in place, with the pieces of *vector*."""
    for mine, new in zip(parameters, unflatten(vector, parameters), strict=True):
        mine.copy_(new)
