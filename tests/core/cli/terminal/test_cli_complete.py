"""What a shell completes: keys and values of --set, operations, schedules, names; asked for directly, and by bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simcluster.cli.terminal.complete import set_keys
from simcluster.collectives.schedules import SCHEDULES
from simcluster.lab.cli.bench import operations, schedules
from tests.support.root import ROOT


def context(**params: Any) -> Any:
    return SimpleNamespace(args=[], params=params)


def completed(incomplete: str, **params: Any) -> list[str]:
    return set_keys(context(**{"experiment": "quickstart", **params}), incomplete)


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("stop.s", ["stop.steps=", "stop.steps=..."]),
        ("stop.", ["stop.steps=", "stop.epochs=", "stop.patience=", "stop.time="]),
        ("algorithm.pu", ["algorithm.pull_interval=", "algorithm.pull_interval=..."]),
        ("workload.hi", ["workload.hidden=", "workload.hidden=..."]),
        ("topology.nodes.pi4.str", ["topology.nodes.pi4.straggler=", "topology.nodes.pi4.straggler=..."]),
        ("topology.nodes.*.comp", ["topology.nodes.*.compute=", "topology.nodes.*.compute=..."]),
        ("topology.links.pi5-mini1.ty", ["topology.links.pi5-mini1.type=", "topology.links.pi5-mini1.type=..."]),
        ("backend=so", ["backend=sockets"]),
        ("regroup=", ["regroup=true", "regroup=false"]),
        ("observe.gradient_norms=l", ["observe.gradient_norms=layers"]),
        ("algorithm=ed", ["algorithm=edp"]),
        ("topology=smol", ["topology=smolcluster"]),
        ("topology.links.pi5-mini1.type=ethernet-1g", ["topology.links.pi5-mini1.type=ethernet-1g"]),
        ("topology.nodes.pi4.device=raspberry-pi-4", ["topology.nodes.pi4.device=raspberry-pi-4"]),
        ("no_such", []),
        ("no_such=", []),
    ],
)  # fmt: skip
def test_keys_and_values_of_the_named_experiment_are_completed(incomplete: str, expected: list[str]) -> None:
    assert completed(incomplete) == expected


def test_another_algorithm_or_topology_brings_its_own_keys() -> None:
    assert completed("algorithm.push=", algorithm="edp") == ["algorithm.push=gradients", "algorithm.push=weights"]
    assert completed("algorithm.push") == []
    assert completed("topology.nodes.b1.si", topology="two-sites-wan")[0] == "topology.nodes.b1.site="
    assert completed("topology.w", experiment="eight-on-a-switch")[0] == "topology.workers="
    assert completed("topology.nodes", experiment="eight-on-a-switch") == []


def test_a_file_that_is_not_there_or_not_right_completes_the_general_keys(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    for text in ("", "a: [", "topology: {nodes: 3, links: [1, {between: 2}]}\nalgorithm: 4\n"):
        wrong.write_text(text)
        assert completed("stop.st", experiment=str(wrong))[0] == "stop.steps="
        assert completed("topology.net", experiment=str(wrong))[0] == "topology.network="
    assert completed("stop.st", experiment="no-such")[0] == "stop.steps="


def test_a_topology_beside_the_experiment_is_found_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("nodes: {left: {flops: 1 GFLOP/s}}\n")
    (tmp_path / "e.yaml").write_text("topology: mine.yaml\n")
    assert completed("topology.nodes.left.flo", experiment=str(tmp_path / "e.yaml"))[0] == "topology.nodes.left.flops="


def test_operations_and_schedules_are_those_of_the_table() -> None:
    assert operations() == list(SCHEDULES)
    for op, there_are in SCHEDULES.items():
        assert schedules(context(op=op)) == list(there_are)
    assert set(schedules(context())) == {name for there_are in SCHEDULES.values() for name in there_are}


def test_completing_imports_no_torch() -> None:
    script = (
        "import sys\nfrom types import SimpleNamespace as N\n"
        "from simcluster.cli.terminal.complete import set_keys\nfrom simcluster.lab.cli.bench import schedules\n"
        "set_keys(N(args=['quickstart'], params={}), 'topology.nodes.')\nschedules(N(params={}))\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


BASH = """
eval "$(_SIMCLUSTER_COMPLETE=source_bash simcluster)"
COMP_WORDS=(simcluster {words} "{last}"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="${{COMP_WORDS[*]}}"
$(complete -p simcluster | sed 's/.*-F \\([^ ]*\\).*/\\1/') simcluster
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [
        ("run quickstart --set", "stop.st", ["stop.steps=", "stop.steps=..."]),
        # Readline replaces what follows the last =, and bash passes that sign as a word of its own.
        ("run quickstart --set backend", "=", ["sim", "sockets", "torch"]),
        ("run quickstart --set backend =", "so", ["sockets"]),
        ("run quickstart --set=backend =", "so", ["sockets"]),
        ("run quickstart --set stop.steps = 3 --set regroup", "=", ["true", "false"]),
        ("run quickstart --set seed = 3 --algorithm edp --set algorithm.push =", "w", ["weights"]),
        ("run quickstart --set", "'backend=so", ["backend=sockets"]),  # a word in quotes is not split
        ("run quickstart --set backend =", "", []),  # after a space
        ("run quickstart --algorithm =", "ed", ["edp"]),
    ],
)
def test_bash_completes(words: str, last: str, expected: list[str], tmp_path: Path) -> None:
    program = tmp_path / "simcluster"
    program.write_text(f"#!{sys.executable}\nfrom simcluster.__main__ import main\n\nmain()\n")
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = BASH.format(words=words, last=last)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.split() == expected, done.stderr
