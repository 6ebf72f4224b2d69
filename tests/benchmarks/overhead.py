"""What a simulated run costs beside its numerics: its time over that of the same gradients in a plain torch loop.

This file knows experiments and torch. It must not know how the simulator works.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import torch

from backends.sim import run_cluster
from simcluster.experiment.job import ClusterJob
from simcluster.experiment.read import Experiment, read_experiment
from tests.benchmarks.timing import Ratio, compare

STEPS = 40
ALGORITHMS = ("sync_ps", "all_reduce_dp", "edp")
SIZES = ((32, 128), (128, 128), (512, 128), (512, 512))
"""(batch size, hidden units); the first is the quickstart's."""


class Case(NamedTuple):
    algorithm: str
    batch_size: int
    hidden: int
    gradient_ms: float
    ratio: Ratio


def measure() -> Iterator[Case]:
    """One case after the other; *gradient_ms* is what one gradient takes in the plain loop."""
    for batch_size, hidden in SIZES:
        for algorithm in ALGORITHMS:
            experiment = _plan(algorithm, batch_size, hidden)
            ratio = compare(lambda plan=experiment: _simulate(plan), lambda plan=experiment: _plain_loop(plan))
            gradients = STEPS * len(experiment.topology.workers)
            yield Case(algorithm, batch_size, hidden, ratio.b_s / gradients * 1e3, ratio)


def _plan(algorithm: str, batch_size: int, hidden: int) -> Experiment:
    """The quickstart with another algorithm and other sizes, evaluated at its end."""
    return read_experiment(
        "quickstart",
        {
            "algorithm": {"name": algorithm},
            "workload.batch_size": batch_size,
            "workload.hidden": hidden,
            "stop.steps": STEPS,
            "evaluate_every": STEPS + 1,
        },
    )


def _simulate(experiment: Experiment) -> None:
    job = ClusterJob(
        names=experiment.topology.workers,
        config_json=json.dumps(experiment.document),
        seed=experiment.seed,
        topology=experiment.topology,
    )
    assert run_cluster(job).error is None


def _plain_loop(experiment: Experiment) -> None:
    """What a person would write without a cluster: one model, every rank's batch in turn, one step with the mean."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    size = len(experiment.topology.workers)
    replicas = [
        experiment.workload.replica(rank, size, experiment.seed, steps=experiment.steps) for rank in range(size)
    ]
    model = replicas[0]
    for batches in zip(*[replica.batches() for replica in replicas], strict=True):
        gradients = [model.loss_and_gradients(batch)[1] for batch in batches]
        mean = gradients[0]
        for other in gradients[1:]:
            for into, gradient in zip(mean, other, strict=True):
                into.add_(gradient)
        model.apply([gradient.div_(size) for gradient in mean])
    model.evaluate()
    model.weights_sha256()
    torch.set_num_threads(threads)
