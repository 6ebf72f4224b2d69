"""The cost of an algorithm's own arithmetic depends on shapes, and is counted once."""

from __future__ import annotations

import torch
from torch import Tensor

from simcluster.algorithms.timed import cost_of


def test_arithmetic_is_counted_once_whatever_its_floats() -> None:
    x, counted = torch.zeros(10), list[float]()

    def work(a: Tensor, share: float) -> Tensor:
        counted.append(share)
        return a.mul(share)

    costs = [cost_of(work, x, share) for share in (0.3, 0.7, -2.0)]
    assert costs[0] == costs[1] == costs[2]
    assert costs[0].flops == 10  # one number written for each of ten
    assert len(counted) == 1


def test_a_float_that_is_0_and_a_whole_number_are_counted_apart() -> None:
    def work(a: Tensor, share: float, size: int) -> Tensor:
        return a[:size].mul(share) if share else a[:size].clone().mul(1.0).add(1.0)

    x = torch.zeros(10)
    assert cost_of(work, x, 0.5, 4).flops == 4
    assert cost_of(work, x, 0.5, 6).flops == 6
    assert cost_of(work, x, 0.0, 4).flops > 4
