"""Stale-synchronous parallel: how far slack helps, and against which stragglers it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, exceeds, served
from experiments.papers.frame.lab import curve, values

P = 4
TRANSIENT = [{"kind": "exponential"}] * P
PERSISTENT = [None] * (P - 1) + [{"kind": "constant", "factor": 4}]


def speed(lab: Lab, stragglers: Sequence[Any], s: int | None, steps: int) -> tuple[float, float]:
    """(gradients a second while all are at work, the largest lead of the fastest over the slowest)."""
    run = lab.run(
        topology=served(stragglers),
        algorithm={"name": "ssp", "staleness": s, "server_trains": False},
        workload={"path": BOWL},
        stop={"steps": steps},
        numerics="none",
    )
    # Until the first worker has ended; the first tenth, in which the fast ones use up their slack, does not count.
    end_s = min(curve(run, "pushed", f"n{rank}")[-1][0] for rank in range(1, P + 1))
    pushes = [time_s for rank in range(1, P + 1) for time_s, _ in curve(run, "pushed", f"n{rank}")]
    counted = sum(0.1 * end_s < time_s <= end_s for time_s in pushes)
    return counted / (0.9 * end_s), max(values(run, "lead", "n0"))


def measure(lab: Lab) -> Sequence[Check]:
    steps = lab.pick(200, 2000)
    bounds = lab.pick((0, 3), (0, 1, 3, 10))
    transient = {s: speed(lab, TRANSIENT, s, steps) for s in (*bounds, None)}
    persistent = {s: speed(lab, PERSISTENT, s, steps) for s in (*bounds, None)}

    # s = 0: all wait for the slowest of P exponentials, of mean H_P and variance the sum of 1/i^2.
    mean_s = math.fsum(1 / i for i in range(1, P + 1))
    share = math.sqrt(math.fsum(1 / i**2 for i in range(1, P + 1)) / (0.9 * steps)) / mean_s
    checks = [agrees("transient, s = 0: gradients/s", transient[0][0], P / mean_s, 3 * share * P / mean_s)]
    for less, more in pairwise(bounds):
        checks.append(
            exceeds(f"transient, s = {more} above s = {less}: gradients/s", transient[more][0], transient[less][0])
        )
    unbounded = transient[None][0]
    checks.append(agrees("transient, s infinite: gradients/s", unbounded, P, 3 * P / math.sqrt(0.8 * P * steps)))
    for s in bounds:
        # The slowest makes a gradient in 4 s, and everybody as many as it: P/4 a second.
        checks.append(agrees(f"persistent, s = {s}: gradients/s", persistent[s][0], P / 4, 0.02))
    checks.append(agrees("persistent, s infinite: gradients/s", persistent[None][0], P - 1 + 1 / 4, 0.05))
    for s in bounds:
        lead = max(transient[s][1], persistent[s][1])
        checks.append(Check(f"lead, s = {s}", f"{s + 1}, reached and not passed", f"{lead:g}", lead == s + 1))
    return checks


PAPER = Paper(
    title="SSP: slack against stragglers",
    citation="Ho, Cipar, Cui, Kim, Lee, Gibbons, Gibson, Ganger and Xing 2013. More Effective Distributed ML via a "
    "Stale Synchronous Parallel Parameter Server (NIPS), sections 2 and 5",
    claim="Workers that may lead the slowest by more clocks compute more gradients per second, up to the "
    "asynchronous rate; that hides transient stragglers, but not a worker that is always slow.",
    setting=f"`ssp` with {P} workers and a server that only serves, a network that takes no time, nothing computed. "
    "Transient: every gradient takes an exponential time of mean 1 s. Persistent: three workers take 1 s, the "
    "fourth 4 s.",
    expected=" for s infinite, rising between. Persistent: 1 for every finite s, 3.25 for s infinite. The fastest "
    "leads the slowest by at most s + 1 clocks.",
    measure=measure,
)
