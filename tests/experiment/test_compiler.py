"""Torch's compiler takes as long to import as torch: only runs that may need it do so, before the clock starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simcluster.experiment.node import preloads
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.warm_up import COMPILER, needs_compiler

USES = """
import sys, tempfile
from simcluster.algorithms import ALGORITHMS
from simcluster.experiment import run
from simcluster.experiment.read.read import read_experiment
from simcluster.experiment.warm_up import COMPILER, needs_compiler
from simcluster.workloads import WORKLOADS

plain = read_experiment("quickstart").document
names = [name for name in ALGORITHMS if not needs_compiler({**plain, "algorithm": {"name": name}})]
assert len(names) > 15
for change in [{"algorithm.name": name} for name in names] + [{"workload.name": name} for name in WORKLOADS]:
    with tempfile.TemporaryDirectory() as folder:
        run("quickstart", overrides={"stop.steps": 2, **change}, out=f"{folder}/run", report=False)
    assert COMPILER not in sys.modules, change
"""


QUICKSTART = read_experiment("quickstart").document


def test_runs_that_are_said_not_to_need_it_do_not_import_it() -> None:
    subprocess.run([sys.executable, "-c", USES], check=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": {"name": "pipeline"}},
        {"algorithm": {"name": "zero"}},
        {"algorithm": {"name": "all_reduce_dp", "compression": {"kind": "int8"}}},
        {"numerics": "none"},
    ],
    ids=str,
)
def test_parts_of_a_model_codecs_and_tensors_without_values_may_need_it(changes: dict[str, Any]) -> None:
    assert needs_compiler({**QUICKSTART, **changes})


def test_the_users_code_may_need_it_and_nodes_are_forked_with_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("async def own(node, replica):\n    pass\n")
    (tmp_path / "own.yaml").write_text(
        "topology: smolcluster\nalgorithm: {path: own.py:own}\nworkload: quadratic\nstop: {steps: 1}\n"
    )
    written = read_experiment(tmp_path / "own.yaml").document
    assert needs_compiler(written)
    assert not needs_compiler(QUICKSTART)
    assert preloads(json.dumps(written)) == [COMPILER]
