"""Error against time: asynchronous SGD falls sooner and stays higher, synchronous SGD ends lower; the curves cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, exceeds, served
from experiments.papers.frame.lab import curve

P, SIZE, ETA, SIGMA = 4, 1000, 0.1, 1.0
SETTLED = 40
"""Updates after which the start is forgotten: 0.9^80 of the loss is left."""


def descent(lab: Lab, steps: int, algorithm: dict[str, Any]) -> list[tuple[float, float]]:
    """(seconds, exact loss a coordinate) of the server's weights."""
    run = lab.run(
        topology=served([{"kind": "exponential"}] * P),
        algorithm={**algorithm, "server_trains": False},
        # Every gradient has noise of its own: no sample comes twice.
        workload={"path": BOWL, "learning_rate": ETA, "sigma": SIGMA, "size": SIZE, "samples": (P + 1) * (steps + 1)},
        stop={"steps": steps},
        evaluate_every=2,
        seed=1,
    )
    return [(time_s, loss / SIZE) for time_s, loss in curve(run, "eval_loss", "n0")]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def floor(found: Sequence[tuple[float, float]]) -> float:
    return mean([loss for _, loss in found[SETTLED // 2 :]])


def crossing_s(low_first: Sequence[tuple[float, float]], low_last: Sequence[tuple[float, float]]) -> float:
    """When the second is below the first for the first time, and the first was below before; else nan."""
    events = sorted([(t, 0, loss) for t, loss in low_first] + [(t, 1, loss) for t, loss in low_last])
    now = [math.nan, math.nan]
    was_below = False
    for time_s, which, loss in events:
        now[which] = loss
        was_below = was_below or now[0] < 0.8 * now[1]
        if was_below and now[1] < now[0]:
            return time_s
    return math.nan


def measure(lab: Lab) -> Sequence[Check]:
    steps = lab.pick(120, 800)
    sync = {k: descent(lab, steps, {"name": "k_sync", "k": k}) for k in lab.pick((1, P), (1, 2, P))}
    late = descent(lab, steps, {"name": "edp"})
    # x^2 of each coordinate is chi-squared: its mean has the relative variance 2/SIZE, and as many independent looks
    # as times that the memory of 1/eta updates fits into the run.
    looks = (steps - SETTLED) * ETA / 2
    error = 3 * math.sqrt(2 / SIZE / looks)
    checks = []
    for k, found in sync.items():
        expected = ETA * SIGMA**2 / (2 * (2 - ETA) * k)
        checks.append(agrees(f"floor of K-sync, K = {k}", floor(found), expected, error * expected))
    checks.append(exceeds("floor of async above that of sync", floor(late), floor(sync[P]), times=2))
    # Five seconds: 20 asynchronous updates, 2.4 synchronous ones.
    slow, soon = (next(loss for time_s, loss in found if time_s > 5.0) for found in (sync[P], late))
    checks.append(exceeds("loss after 5 s: sync above async", slow, soon, times=2))
    meet_s = crossing_s(late, sync[P])
    return [*checks, Check("the curves cross", "once async is down", f"at {meet_s:.3g} s", meet_s > 5.0)]


PAPER = Paper(
    title="Error against time: sync and async cross",
    citation="Dutta, Joshi, Ghosh, Dube and Nagpurkar 2018. Slow and Stale Gradients Can Win the Race (AISTATS), "
    "sections 4 and 5",
    claim="Against time, the loss of asynchronous SGD falls first, because no worker waits, and ends on a higher "
    "floor, because its gradients are stale and not averaged; synchronous SGD ends lowest. More gradients per "
    "step give a lower floor.",
    setting=f"f = |x|^2/2 in {SIZE:,} coordinates, gradient noise of variance 1, eta = 0.1, {P} workers with "
    "exponential gradient times of mean 1 s, a network that takes no time. The loss is exact, for the server's "
    "weights. On a quadratic the floor of K averaged gradients is known: eta sigma^2 / (2 (2 - eta) K) per coordinate.",
    expected="The floors of K-sync within 3 standard errors; that of async at least twice that of sync; async at "
    "least twice as low after 5 s; the curves cross after that.",
    measure=measure,
)
