"""A learning rate that knows how old its gradients are; and how old n-softsync lets them become."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, served
from experiments.papers.frame.lab import values

WORKERS = 8
RATE = 0.1
"""Of the digits: sync learns with it, gradients that are 7 updates old do not; with a fifth of it they do."""


def accuracy(lab: Lab, algorithm: dict[str, Any], rate: float) -> float:
    """Held-out accuracy of handwritten digits."""
    run = lab.run(
        topology=served([None] * WORKERS),
        algorithm={**algorithm, "server_trains": False},
        workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 16, "learning_rate": rate},
        stop={"steps": lab.pick(20, 100)},
        evaluate_every=10_000,
    )
    found = run.summary["accuracy"]
    return float(found) if found is not None else math.nan


def distance(lab: Lab, algorithm: dict[str, Any]) -> float:
    """How far from the minimum of x^2/2 the server ends, from 1."""
    run = lab.run(
        topology=served([None] * 4),
        algorithm={**algorithm, "server_trains": False},
        workload={"path": BOWL, "learning_rate": 1.0},
        stop={"steps": 60},
    )
    return abs(float(next(iter(run.weights().values()))))


def staleness(lab: Lab, n: int, straggler: dict[str, Any] | None) -> float:
    """The mean over gradients of how many updates are between reading the weights and being applied."""
    run = lab.run(
        topology=served([straggler] * WORKERS),
        algorithm={"name": "softsync", "n": n, "server_trains": False},
        workload={"path": BOWL},
        stop={"steps": lab.pick(100, 1000)},
        numerics="none",
    )
    found = values(run, "staleness", "n0")
    found = found[: len(found) * 4 // 5]  # before the first worker ends
    return sum(found) / len(found)


SYNC, ASYNC, DAMPED = {"name": "sync_ps"}, {"name": "edp"}, {"name": "edp", "damping": "inverse"}


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for n in lab.pick((1, 8), (1, 2, 4, 8)):
        expected = (WORKERS - 1) / (WORKERS / n)
        for words, straggler, share in (
            ("equal workers", None, lab.pick(0.02, 0.005)),
            ("exponential times", {"kind": "exponential"}, lab.pick(0.05, 0.01)),
        ):
            name = f"mean staleness of {n}-softsync, {words}"
            checks.append(agrees(name, staleness(lab, n, straggler), expected, share * expected))
    digits = {name: accuracy(lab, algorithm, RATE) for name, algorithm in (("sync", SYNC), ("async", ASYNC))}
    mended, slower = accuracy(lab, DAMPED, RATE), accuracy(lab, ASYNC, RATE / 5)
    bowl = [distance(lab, algorithm) for algorithm in (SYNC, ASYNC, DAMPED)]
    least = lab.pick(0.8, 0.9) * digits["sync"]
    return [
        *checks,
        Check("digits, sync", "above 0.75", f"{digits['sync']:.3f}", digits["sync"] > 0.75),
        Check("digits, async at the same rate", "below 0.4", f"{digits['async']:.3f}", digits["async"] < 0.4),
        Check("digits, divided by staleness", f"above {least:.3f}", f"{mended:.3f}", mended > least),
        Check("digits, async at a fifth of the rate", f"above {least:.3f}", f"{slower:.3f}", slower > least),
        Check("bowl, sync", "distance below 1e-6", f"{bowl[0]:.2g}", bowl[0] < 1e-6),
        Check("bowl, async at the same rate", "distance above 1e6", f"{bowl[1]:.2g}", not bowl[1] <= 1e6),
        Check("bowl, divided by staleness", "distance below 1e-3", f"{bowl[2]:.2g}", bowl[2] < 1e-3),
    ]


PAPER = Paper(
    title="A rate that knows staleness; n-softsync",
    citation="Zhang, Gupta, Lian and Liu 2016. Staleness-Aware Async-SGD for Distributed Deep Learning (IJCAI), "
    "sections 2 to 4",
    claim="An asynchronous server can fail at a learning rate with which a synchronous one learns; dividing each "
    "gradient's rate by its staleness corrects that. A server that gathers K = lambda/n gradients for an update "
    "sees a mean staleness of about n.",
    setting=f"Digits: `sync_ps` and `edp` train a small network on 4,000 handwritten digits, {WORKERS} equal "
    f"workers, rate {RATE}, 100 batches of 16 on each (the tests: 20). Bowl: x^2/2, 4 workers, rate 1, from 1. "
    f"Staleness: `softsync`, lambda = {WORKERS} workers, nothing computed.",
    expected="Async ends at chance level or near it where sync learns; with `damping: inverse` it is as good as "
    "sync, and with a rate that allows for staleness it also learns. The mean staleness is (lambda - 1)/K, with "
    "equal and with random workers.",
    measure=measure,
)
