"""The cost of a simulated run relative to a plain torch loop that computes the same gradients.

CPU times are measured on one core, wall times on two. `python -m tools.benchmarks.overhead`
measures only the batches of the quickstart.
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

STEPS = 40
GPT_STEPS = 8
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
"""Name of a workload -> its block of an experiment. The first one is the quickstart's."""


class Case(NamedTuple):
    """The ratios for one workload and algorithm. *two_cores* compares wall times on two cores.

    *gradient_ms* is the time of one gradient in the plain loop.
    """

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
    """Yield the CPU time for the quickstart's batches relative to the plain loop, for each
    algorithm.
    """
    block = next(iter(WORKLOADS.values()))
    for algorithm in ALGORITHMS:
        plan = _plan(algorithm, block)
        yield compare(lambda plan=plan: _simulate(plan, 1), lambda plan=plan: _plain_loop(plan), pairs)


def measure() -> Iterator[Case]:
    """Yield the ratios for every workload and algorithm, each as soon as it is measured."""
    for workload, block in WORKLOADS.items():
        for algorithm in ALGORITHMS:
            plan = _plan(algorithm, block)
            one = compare(lambda plan=plan: _simulate(plan, 1), lambda plan=plan: _plain_loop(plan))
            two = compare(lambda plan=plan: _simulate(plan, 2), lambda plan=plan: _plain_loop(plan), clock=wall_s)
            gradients = plan.steps * len(plan.topology.workers)
            yield Case(workload, algorithm, one.b_s / gradients * 1e3, one, two.ratio)


def _plan(algorithm: str, workload: dict[str, object]) -> Experiment:
    """Return the quickstart with another algorithm and workload, and with one evaluation at its
    end.
    """
    return read_experiment(
        "quickstart",
        {
            "algorithm": {"name": algorithm},
            "workload": workload,
            "stop.steps": GPT_STEPS if workload["name"] == "gpt" else STEPS,
            "evaluate_every": 10**6,  # never before the end
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
    """Train one model without a cluster: in each step, average the gradients of all
    ranks' batches.
    """
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
