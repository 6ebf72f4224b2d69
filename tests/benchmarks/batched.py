"""What the option `batched` saves: the CPU time of a run with it over that of the same run without, interleaved.

python -m tests.benchmarks.batched [--pairs N]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from simcluster.experiment import Experiment, read_experiment
from simcluster.experiment.job import ClusterJob
from simcluster_backends.sim import run_cluster
from tests.benchmarks.timing import Ratio, compare

SIZES = (16, 64, 256)
PAIRS = 5
MLP, GPT = {"name": "mnist_mlp", "batch_size": 8}, {"name": "gpt", "batch_size": 2}
"""Small batches: the 4,000 images that come with the package are 15 for each of 256 nodes."""


class Case(NamedTuple):
    """A run with about *gradients* on all nodes together, whatever their number."""

    name: str
    workload: dict[str, Any]
    algorithm: dict[str, Any]
    gradients: int
    most_nodes: int = SIZES[-1]
    """A ring among more nodes is mostly messages."""


CASES = (
    Case("mnist_mlp, batches of 8, sync_ps", MLP, {"name": "sync_ps"}, 2048),
    Case("mnist_mlp, batches of 8, local_sgd", MLP, {"name": "local_sgd", "interval": 16}, 2048, 64),
    Case("mnist_mlp, batches of 8, all_reduce_dp", MLP, {"name": "all_reduce_dp"}, 1024, 16),
    Case("gpt, batches of 2, sync_ps", GPT, {"name": "sync_ps"}, 512),
    Case("gpt, batches of 2, local_sgd", GPT, {"name": "local_sgd", "interval": 16}, 512, 16),
)


def cases_of(size: int) -> list[Case]:
    """The cases that are measured on *size* nodes."""
    return [case for case in CASES if size <= case.most_nodes]


def ratios(size: int, pairs: int = PAIRS) -> Iterator[Ratio]:
    """Yield the ratio of each case on *size* nodes."""
    for case in cases_of(size):
        plan = _plan(case, size)
        yield compare(lambda plan=plan: _simulate(plan, batched=True), lambda plan=plan: _simulate(plan), pairs)


def _plan(case: Case, size: int) -> Experiment:
    return read_experiment(
        {
            "topology": {"generator": "star", "workers": size, "bandwidth": "1 Gbps", "latency": "50 us"},
            "algorithm": case.algorithm,
            "workload": case.workload,
            "stop": {"steps": case.gradients // size},
            "evaluate_every": 10**6,
        }
    )


def _simulate(plan: Experiment, *, batched: bool = False) -> None:
    options = {"threads": 1, "batched": batched}
    job = ClusterJob(
        names=plan.topology.workers, config_json=json.dumps(plan.document), seed=plan.seed, topology=plan.topology,
        options=options,
    )  # fmt: skip
    record = run_cluster(job)
    assert record.error is None
    assert not batched or record.extra["batched"]["together"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=PAIRS, help="interleaved pairs for each ratio")
    pairs = parser.parse_args().pairs
    print(f"CPU time on one core of a run with `batched` over that without, medians of {pairs} interleaved pairs")
    for size in SIZES:
        for case, found in zip(cases_of(size), ratios(size, pairs), strict=True):
            print(
                f"  {case.name}, {size} nodes: {found.ratio:.2f} ({found.a_s:.2f} s over {found.b_s:.2f})", flush=True
            )


if __name__ == "__main__":
    main()
