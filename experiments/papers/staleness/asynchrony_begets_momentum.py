"""Asynchrony begets momentum: the mean of asynchronous SGD moves as if it had a momentum that nobody asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, served
from experiments.papers.frame.lab import curve

ETA, PROBE = 0.3, 100.0
"""The held-out loss x^2/2 + PROBE x grows with x, so x can be told from it."""


def path(lab: Lab, workers: int, updates: int, seed: int) -> list[float]:
    """x before the first update, after it, and so on."""
    run = lab.run(
        topology=served([{"kind": "exponential"}] * workers),
        algorithm={"name": "edp", "server_trains": False},
        workload={"path": BOWL, "learning_rate": ETA, "probe": PROBE},
        stop={"steps": updates},
        evaluate_every=1,
        seed=seed,
    )
    losses = [loss for _, loss in curve(run, "eval_loss", "n0")][:updates]
    return [1.0] + [math.sqrt(PROBE**2 + 2 * loss) - PROBE for loss in losses]


def heavy_ball(momentum: float, step: float, updates: int) -> list[float]:
    """w_{t+1} = w_t + momentum (w_t - w_{t-1}) - step w_t, once the first update has been taken at the start."""
    w = [1.0, 1.0 - ETA]
    for _ in range(updates - 1):
        w.append(w[-1] + momentum * (w[-1] - w[-2]) - step * w[-1])
    return w


def fitted(mean: npt.NDArray[np.float64]) -> tuple[float, float]:
    """(momentum, step) of the heavy ball nearest to *mean*, in the sense of least squares."""
    change = mean[2:] - mean[1:-1]
    (momentum, step), *_ = np.linalg.lstsq(np.stack([mean[1:-1] - mean[:-2], -mean[1:-1]], axis=1), change, rcond=None)
    return float(momentum), float(step)


def mean_paths(lab: Lab) -> list[Check]:
    """The mean over seeds against the heavy ball, update by update, in standard errors; and what it is fitted by."""
    checks = []
    updates, seeds = lab.pick((8, 24), (12, 300))
    for workers in lab.pick((4,), (2, 4, 8)):
        paths = np.array([path(lab, workers, updates, seed) for seed in range(seeds)])
        mean, error = paths.mean(axis=0), np.maximum(paths.std(axis=0) / math.sqrt(seeds), 1e-12)
        momentum, step = 1 - 1 / workers, ETA / workers
        # The first two are the same in every run: the first update has nothing to be stale against.
        apart = float(np.max(np.abs(mean - heavy_ball(momentum, step, updates))[2:] / error[2:]))
        plain = float(np.max(np.abs(mean - (1 - ETA) ** np.arange(updates + 1))[2:] / error[2:]))
        name = f"{workers} workers"
        checks += [
            Check(f"{name}: from the heavy ball", "within 3 standard errors", f"{apart:.2g} at most", apart < 3),
            Check(f"{name}: from plain SGD", "more than 6", f"{plain:.2g} at most", plain > 6),
        ]
        if lab.full:
            checks.append(agrees(f"{name}: momentum fitted", fitted(mean)[0], momentum, 0.05))
    return checks


def best_momentum(lab: Lab, workers: int, seeds: int) -> float:
    """The explicit momentum with which the server is nearest to the minimum after 160 updates, in geometric mean."""

    def final_loss(momentum: float, seed: int) -> float:
        run = lab.run(
            topology=served([{"kind": "exponential"}] * workers),
            algorithm={"name": "edp", "server_trains": False},
            workload={"path": BOWL, "learning_rate": 0.05, "momentum": momentum},
            stop={"steps": 160 // workers},
            evaluate_every=1000,
            seed=seed,
        )
        return float(run.summary["loss"])

    def logarithm(momentum: float) -> float:
        return sum(math.log(final_loss(momentum, seed)) for seed in range(seeds))

    return min((0.0, 0.2, 0.4, 0.6, 0.8), key=logarithm)


def measure(lab: Lab) -> Sequence[Check]:
    counts = lab.pick((1, 8), (1, 4, 16))
    best = [best_momentum(lab, workers, lab.pick(2, 20) if workers > 1 else 1) for workers in counts]
    falls = all(less < more for more, less in pairwise(best))
    found = ", ".join(f"{momentum:g}" for momentum in best)
    name = f"best explicit momentum with {', '.join(map(str, counts))} workers"
    return [*mean_paths(lab), Check(name, "falling", found, falls)]


PAPER = Paper(
    title="Asynchrony begets momentum",
    citation="Mitliagkas, Zhang, Hadjis and Re 2016. Asynchrony begets Momentum, with an Application to Deep "
    "Learning (Allerton), sections 3 and 4",
    claim="With M asynchronous workers with memoryless times, the mean of SGD moves like a heavy ball of momentum 1 "
    "- 1/M and step eta/M. The more workers there are, the smaller the explicit momentum should be.",
    setting=f"`edp` with M workers of exponential times, f = x^2/2 without noise, eta = {ETA}, x recorded before and "
    "after each of the first 12 updates, the mean of 300 seeds (the tests: 24 of 8). Explicit momentum is the "
    "server's optimizer's: eta = 0.05, 160 updates, 0 to 0.8 by steps of 0.2, 20 seeds.",
    expected="The mean path is the heavy ball's within 3 standard errors at every update, and not that of plain SGD; "
    "a heavy ball fitted to it has momentum 1 - 1/M; the best explicit momentum falls with M.",
    measure=measure,
)
