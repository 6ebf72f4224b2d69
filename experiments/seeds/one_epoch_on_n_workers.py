"""The accuracy of N workers after one epoch."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import Check, Lab, Paper, agrees

WITHIN = 2.0
"""Percentage points: four seeds differ by more than one."""


def accuracy(lab: Lab, workers: int, batch_size: int = 32) -> float:
    """Return the held-out accuracy after one epoch, in per cent, as a mean over seeds."""
    seeds = range(lab.pick(2, 4))
    return 100 * sum(_accuracy(lab, workers, batch_size, seed) for seed in seeds) / len(seeds)


def _accuracy(lab: Lab, workers: int, batch_size: int, seed: int) -> float:
    run = lab.run(
        topology={"generator": "star", "workers": workers, "bandwidth": "1 Gbps", "device": "x86-laptop"},
        algorithm="all_reduce_dp",
        workload={"name": "mnist_mlp", "batch_size": batch_size, "learning_rate": 0.03},
        stop={"epochs": 1},
        seed=seed,
    )
    return float(run.summary["accuracy"])


def measure(lab: Lab) -> Sequence[Check]:
    alone = accuracy(lab, 1)
    checks = []
    for workers in lab.pick((4,), (2, 4, 8)):
        checks.append(agrees(f"{workers} workers, 32 each", accuracy(lab, workers), alone, WITHIN, " %"))
        shared = accuracy(lab, workers, 32 // workers)
        checks.append(agrees(f"{workers} workers, 32 in all", shared, alone, WITHIN, " %"))
    return checks


PAPER = Paper(
    title="N workers' accuracy after one epoch",
    citation="DDP simulation 2025. Phase 8 distributed training, Performance Baselines",
    claim="Two and four workers converge to the accuracy of a single process in one epoch (98.36 % on MNIST).",
    setting="`all_reduce_dp` with `mnist_mlp` on the 5,000 digits of the package, one epoch on 1 to 8 workers: 32 "
    "samples per worker, and 32 samples in all.",
    expected="The accuracy of one worker, to two percentage points.",
    measure=measure,
    missed={f"{workers} workers, 32 each": "an epoch has N times fewer steps." for workers in (2, 4, 8)},
)
