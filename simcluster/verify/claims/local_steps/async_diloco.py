"""Claims about asynchronous DiLoCo, and its reference for one rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simcluster.verify.claim import Claim, Settings, Variant, Weights
from simcluster.verify.faults import SERVED
from simcluster.verify.naive import account, born, ended, overwrite, up_and_down, vector, walk
from simcluster.workloads import Workload


def delayed_nesterov(
    theta: Tensor, arrivals: Sequence[Tensor], epsilon: float, beta: float, N: int, c: float
) -> list[Tensor]:
    """Return theta after each of *arrivals*, step by step as in the paper."""
    m = gathered = torch.zeros_like(theta)
    after = []
    for t, delta in enumerate(arrivals):
        gathered = gathered + delta
        if (t + 1) % N == 0:
            m = beta * m + gathered / N
            theta = theta - epsilon * ((1 - c * N + c) * beta * m + delta / N)
            gathered = torch.zeros_like(theta)
        else:
            theta = theta - epsilon * (c * beta * m + delta / N)
        after.append(theta)
    return after


def reference(workload: Workload, size: int, seed: int, steps: int, settings: Settings) -> Weights:
    """One rank alone, with sequential updates; with more ranks the order of arrival decides."""
    if size > 1:
        return []
    (replica,) = born(workload, 1, seed, steps)
    batches, theta, arrivals = replica.batches(), vector(replica), list[Tensor]()
    N = settings["delay"] or 1
    for _ in range(0, steps, settings["interval"]):
        overwrite(replica, theta)
        walk(replica, batches, settings["interval"])
        arrivals.append(theta - vector(replica))
        outer = settings["outer_learning_rate"], settings["outer_momentum"], N, settings["spread"] / N
        theta = delayed_nesterov(torch.zeros_like(theta), arrivals, *outer)[-1] + vector(born(workload, 1, seed, 1)[0])
    overwrite(replica, theta)
    return ended([replica])


CLAIM = Claim(
    paper="Liu et al. 2024, delayed Nesterov and dynamic local updates",
    settings={"interval": 2, "dynamic": False},
    order_free=False,
    reference=reference,
    variants={
        "interval": 1,
        "dynamic": Variant(True, uneven=True),
        "outer_learning_rate": 0.5,
        "outer_momentum": 0.5,
        "delay": 1,
        "spread": 1.0,
        "compression": "int8",
        "server_trains": False,
    },
    payload_bytes=up_and_down,
    contributions=account,
    outcomes=SERVED,
)
