"""What a simulated run costs besides its numerics: its time over that of the same gradients in a plain torch loop, on
one core; and how long both take on two. `python -m tools.benchmarks.overhead` measures the quickstart's batches alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from simcluster_backends.sim import run_cluster

from simcluster.experiment import Experiment, read_experiment
from simcluster.job import ClusterJob
from simcluster.process.intra_op import one_thread
from tools.benchmarks.timing import Ratio, compare, wall_s

STEPS, GPT_STEPS = 40, 8
PAIRS = 15
ALGORITHMS = ("sync_ps", "all_reduce_dp", "edp")
WORKLOADS: dict[str, dict[str, object]] = {
    f"mnist_mlp, batch {batch_size}, {hidden} hidden units": {
        "name": "mnist_mlp",
        "batch_size": batch_size,
        "hidden": hidden,
    }
    for batch_size, hidden in ((32, 128), (128, 128), (512, 128), (512, 512))
} | {"gpt, batch 16": {"name": "gpt"}}
"""The first is the quickstart's."""


class Case(NamedTuple):
    """*gradient_ms* is what one gradient takes in the plain loop; *two_cores* is the ratio of wall times with two."""

    workload: str
    algorithm: str
    gradient_ms: float
    one_core: Ratio
    two_cores: float


def main() -> None:
    workload = next(iter(WORKLOADS))
    print(f"{workload}: CPU time on one core over that of the plain loop, medians of {PAIRS} interleaved pairs")
    for algorithm, found in zip(ALGORITHMS, ratios(PAIRS), strict=True):
        a_ms, b_ms = (seconds / STEPS * 1e3 for seconds in (found.a_s, found.b_s))
        print(f"  {algorithm}: {found.ratio:.2f} ({a_ms:.2f} ms a step over {b_ms:.2f})", flush=True)


def ratios(pairs: int) -> Iterator[Ratio]:
    """Yield the CPU time on one core over that of the plain loop with the quickstart's batches, for each algorithm."""
    block = next(iter(WORKLOADS.values()))
    for algorithm in ALGORITHMS:
        plan = _plan(algorithm, block)
        yield compare(lambda plan=plan: _simulate(plan, 1), lambda plan=plan: _plain_loop(plan), pairs)


def measure() -> Iterator[Case]:
    """One case after the other."""
    for workload, block in WORKLOADS.items():
        for algorithm in ALGORITHMS:
            plan = _plan(algorithm, block)
            one = compare(lambda plan=plan: _simulate(plan, 1), lambda plan=plan: _plain_loop(plan))
            two = compare(lambda plan=plan: _simulate(plan, 2), lambda plan=plan: _plain_loop(plan), clock=wall_s)
            gradients = plan.steps * len(plan.topology.workers)
            yield Case(workload, algorithm, one.b_s / gradients * 1e3, one, two.ratio)


def _plan(algorithm: str, workload: dict[str, object]) -> Experiment:
    """The quickstart with another algorithm and workload, evaluated at its end."""
    return read_experiment(
        "quickstart",
        {
            "algorithm": {"name": algorithm},
            "workload": workload,
            "stop.steps": GPT_STEPS if workload["name"] == "gpt" else STEPS,
            "evaluate_every": 10**6,
        },
    )


def _simulate(experiment: Experiment, threads: int) -> None:
    job = ClusterJob(
        names=experiment.topology.workers,
        config_json=json.dumps(experiment.document),
        seed=experiment.seed,
        topology=experiment.topology,
        options={"threads": threads},
    )
    assert run_cluster(job).error is None


@one_thread()
def _plain_loop(experiment: Experiment) -> None:
    """What a person would write without a cluster: one model, every rank's batch in turn, one step with the mean."""
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


if __name__ == "__main__":
    main()
