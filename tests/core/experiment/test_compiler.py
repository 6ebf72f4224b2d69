"""Torch's compiler takes as long to import as torch: only runs that may need it do so, before the clock starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simcluster.experiment import node
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.warm_up import COMPILER, PLAIN, needs_compiler
from simcluster.lab.calibrate import measure
from simcluster.lab.verify import probe
from simcluster.workloads import WORKLOADS

USES = """
import json, sys, tempfile
from simcluster.experiment import run
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.warm_up import COMPILER, needs_compiler

for change in json.loads(sys.argv[1]):
    change["stop.steps"] = 3
    assert not needs_compiler(read_experiment("quickstart", change).document), change
    with tempfile.TemporaryDirectory() as folder:
        run("quickstart", overrides=change, out=f"{folder}/run", report=False)
    assert COMPILER not in sys.modules, change
"""

LARGE = {"workload.hidden": 1500}
"""785 * 1500 + 1501 * 10 weights: more than 2^20, above which an algorithm's arithmetic is counted without values."""

SETTINGS: list[dict[str, Any]] = [
    {"algorithm.name": "sync_ps", "algorithm.polyak": 0.5},
    {"algorithm.name": "sync_ps", "algorithm.pull_interval": 2},
    *(
        {"algorithm.name": "all_reduce_dp", "algorithm.schedule": name}
        for name in ("halving_doubling", "binomial", "naive")
    ),
    {"algorithm.name": "all_reduce_dp", "algorithm.accumulate": 2, "algorithm.staleness": 1},
    {"algorithm.name": "edp", "algorithm.pull_interval": 2},
]


QUICKSTART = read_experiment("quickstart").document


@pytest.mark.slow
def test_runs_that_are_said_not_to_need_it_do_not_import_it() -> None:
    changes = [*({"algorithm.name": name} for name in sorted(PLAIN)), *SETTINGS]
    changes = [*({**change, **LARGE} for change in changes), *({"workload.name": name} for name in WORKLOADS)]
    subprocess.run([sys.executable, "-c", USES, json.dumps(changes)], check=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": {"name": "pipeline"}},
        {"algorithm": {"name": "zero"}},
        {"algorithm": {"name": "one_bit_adam"}},
        {"algorithm": {"name": "local_sgd"}},
        {"algorithm": {"name": "all_reduce_dp", "bucket_bytes": 1000}},
        {"algorithm": {"name": "all_reduce_dp", "compression": {"kind": "int8"}}},
        {"numerics": "none"},
    ],
    ids=str,
)
def test_whatever_is_counted_on_tensors_without_values_may_need_it(changes: dict[str, Any]) -> None:
    assert needs_compiler({**QUICKSTART, **changes})


def test_the_users_code_may_need_it_and_nodes_are_forked_with_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("async def own(node, replica):\n    pass\n")
    (tmp_path / "own.yaml").write_text(
        "topology: smolcluster\nalgorithm: {path: own.py:own}\nworkload: quadratic\nstop: {steps: 1}\n"
    )
    written = read_experiment(tmp_path / "own.yaml").document
    assert needs_compiler(written)
    assert not needs_compiler(QUICKSTART)
    for program in (node, probe):
        assert program.preloads(json.dumps(written)) == [COMPILER]
    assert measure.preloads(json.dumps({"experiment": written})) == [COMPILER]
