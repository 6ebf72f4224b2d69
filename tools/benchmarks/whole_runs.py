"""Whole runs of many nodes, timing only: the CPU time to read, check, simulate and write a run.

python -m tools.benchmarks.whole_runs CASE [--nodes N]

A case is one of `ad_psgd` (one step on a complete graph), `pipeline` (gpt-70b-1024 on a ring with
more nodes), and `lost` (three steps of `all_reduce_dp`; one rank crashes, and the others re-form
the group). `kept` is `lost` without the crash. Run each case in a fresh process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from simcluster.process.memory import peak_rss_bytes


class Case(NamedTuple):
    """A run of *experiment* with *overrides*. *nodes* is the default number of nodes."""

    words: str
    nodes: int
    experiment: str
    overrides: Mapping[str, Any]


STAR = {"topology.bandwidth": "1 Gbps", "numerics": "none"}
REFORMED = {**STAR, "algorithm.name": "all_reduce_dp", "stop.steps": 3}
RUNS = {
    "ad_psgd": Case(
        "`ad_psgd`, complete graph, 1,024 nodes, one step",
        1024,
        "eight-on-a-switch",
        {**STAR, "algorithm": {"name": "ad_psgd", "overlay": "complete"}, "stop.steps": 1},
    ),
    "pipeline": Case("`gpt-70b-1024` on 16,384 nodes", 16384, "gpt-70b-1024", {}),
    "kept": Case("`all_reduce_dp`, three steps", 512, "eight-on-a-switch", REFORMED),
    "lost": Case(
        "`all_reduce_dp`, three steps, a rank lost",
        512,
        "eight-on-a-switch",
        {**REFORMED, "faults": [{"kind": "crash", "node": "n1", "at": "20 ms"}]},
    ),
}
GOALS_S = {"ad_psgd": 20.0, "pipeline": 60.0}


class Found(NamedTuple):
    cpu_s: float
    peak_bytes: int
    messages: int
    virtual_s: float


def measure(name: str, nodes: int | None = None) -> Found:
    """Return the costs of case *name* in this process. It must be the first run in this process."""
    import simcluster

    case = RUNS[name]
    overrides = {**case.overrides, "topology.workers": nodes or case.nodes}
    began_s = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        run = simcluster.run(case.experiment, overrides=overrides, out=f"{out}/run", report=False)
    cpu_s = time.process_time() - began_s
    return Found(cpu_s, peak_rss_bytes(), run.summary["messages_sent"], run.summary["elapsed_s"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=RUNS)
    parser.add_argument("--nodes", type=int)
    arguments = parser.parse_args()
    found = measure(arguments.case, arguments.nodes)
    nodes = arguments.nodes or RUNS[arguments.case].nodes
    print(
        f"{arguments.case}, {nodes:,} nodes: {found.cpu_s:.1f} CPU s, "
        f"{found.peak_bytes / 1e6:,.0f} MB, {found.messages:,} messages, {found.virtual_s!r} virtual s"
    )


if __name__ == "__main__":
    main()
