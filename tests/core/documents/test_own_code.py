"""Algorithms and models by path: found, checked, and refused with the line that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import simcluster
from simcluster.documents.user_code import check_algorithm, load_function
from simcluster.errors import NodeFailed, UsageError
from simcluster.experiment import read_experiment

GOOD = """
import asyncio
import helper

async def mine(node, replica, *, factor: float = helper.FACTOR):
    await asyncio.sleep(factor)
"""


def write(folder: Path, text: str, name: str = "algo.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_function_is_found_relative_to_the_experiments_folder(tmp_path: Path) -> None:
    write(tmp_path, "FACTOR = 2.0", "helper.py")
    write(tmp_path, GOOD)
    function, reference = load_function("algo.py:mine", tmp_path, "algorithm.path")
    assert function.__kwdefaults__ == {"factor": 2.0}
    assert reference == f"{(tmp_path / 'algo.py').resolve()}:mine"
    check_algorithm(function, "algorithm")


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, "def f(): return 1")
    first, _ = load_function("algo.py:f", tmp_path, "x")
    write(tmp_path, "def f(): return 2")
    second, _ = load_function("algo.py:f", tmp_path, "x")
    assert [first(), second()] == [1, 2]


def test_an_edited_algorithm_is_what_the_next_run_in_the_same_process_runs(tmp_path: Path) -> None:
    source = {
        "topology": {"generator": "star", "workers": 2},
        "algorithm": {"path": f"{tmp_path / 'algo.py'}:mine"},
        "workload": "quadratic",
        "stop": {"steps": 1},
    }
    seen = []
    for seconds in (1.0, 2.0):
        write(tmp_path, f"import asyncio\nasync def mine(node, replica):\n    await asyncio.sleep({seconds})\n")
        seen.append(simcluster.run(source, out=tmp_path / "run", report=False).summary["elapsed_s"])
    assert seen == [1.0, 2.0]


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("algo.py", "expected algo.py:mine"),
        ("nowhere.py:f", "a file at"),
        ("algo.py:min", "did you mean 'mine'?"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, reference: str, words: str) -> None:
    write(tmp_path, "async def mine(node, replica): ...")
    with pytest.raises(UsageError) as caught:
        load_function(reference, tmp_path, "algorithm.path")
    assert words in str(caught.value)


@pytest.mark.parametrize(("text", "line"), [("x = 1\nraise ValueError('no')\n", 2), ("x = (\n", 1)])
def test_a_file_that_does_not_run_is_shown_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_function("algo.py:f", tmp_path, "algorithm.path")
    assert f"{path}:{line}: own code: " in str(caught.value)


def test_banned_imports_are_all_shown_with_what_to_write_instead(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "import time\nimport torch, random\nfrom threading import Lock\n"
        "async def mine(node, replica):\n    import socket\n",
    )
    function, _ = load_function("algo.py:mine", tmp_path, "algorithm.path")
    with pytest.raises(UsageError) as caught:
        check_algorithm(function, "algorithm")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{n}:{c}" for n, c in [(1, 1), (2, 1), (3, 1), (5, 5)]]
    assert "asyncio.sleep" in lines[0]
    assert "node.rng" in lines[1]
    assert "node.send" in lines[3]


def test_an_algorithm_is_async_and_takes_node_and_replica(tmp_path: Path) -> None:
    write(tmp_path, "def mine(node): ...")
    function, _ = load_function("algo.py:mine", tmp_path, "algorithm.path")
    with pytest.raises(UsageError) as caught:
        check_algorithm(function, "algorithm")
    assert "`async def`" in str(caught.value)
    assert "1 positional" in str(caught.value)


def test_a_file_that_exits_does_not_take_the_command_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, "import sys\nsys.exit('bye')\n")
    with pytest.raises(UsageError) as caught:
        load_function("algo.py:f", tmp_path, "algorithm.path")
    assert f"{path}:2: own code: found SystemExit: bye" in str(caught.value)


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_an_algorithm_that_exits_is_a_node_that_failed(tmp_path: Path, backend: str) -> None:
    path = write(tmp_path, "import sys\nasync def mine(node, replica):\n    sys.exit(3)\n")
    with pytest.raises(NodeFailed, match=r"sys\.exit\(3\)") as caught:
        simcluster.run(
            topology="thunderbolt-mesh-4",
            algorithm={"path": f"{path}:mine"},
            workload="quadratic",
            backend=backend,
            out=tmp_path / "run",
            report=False,
        )
    assert (caught.value.seed, caught.value.folder) == (0, str(tmp_path / "run"))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert f'File "{path}", line 3, in mine' in summary["error"]["traceback"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "a function that returns a Workload, not a NoneType"),
        ("raise RuntimeError('my data is gone')", "RuntimeError: my data is gone"),
        ("return workload(lambda: 1 / 0)", "ZeroDivisionError: division by zero"),
        ("return workload(lambda: 3)", "'int' object has no attribute 'train'"),
    ],
)
def test_a_workload_that_cannot_be_made_is_a_usage_error(tmp_path: Path, body: str, words: str) -> None:
    path = write(
        tmp_path,
        "import torch\nfrom simcluster import Workload\nfrom simcluster.workloads import sgd\n"
        "def workload(model):\n"
        "    data = (torch.ones(9, 1), torch.ones(9, 1))\n"
        "    loss = torch.nn.functional.mse_loss\n"
        "    return Workload(model=model, loss=loss, train=data, test=data, optimizer=sgd(0.1), batch_size=1)\n"
        f"def mine():\n    {body}\n",
    )
    experiment = {
        "topology": "thunderbolt-mesh-4",
        "algorithm": "edp",
        "workload": {"path": f"{path}:mine"},
        "stop": {"steps": 1},
    }
    with pytest.raises(UsageError) as caught:
        read_experiment(experiment)
    assert words in str(caught.value)


@pytest.mark.slow
def test_a_script_that_runs_itself_whenever_it_is_read_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import simcluster\n"
        "async def mine(node, replica):\n"
        "    pass\n"
        f"simcluster.run(topology='smolcluster', algorithm={f'{script}:mine'!r}, workload='quadratic',\n"
        f"               stop={{'steps': 1}}, out={str(tmp_path / 'run')!r}, report=False)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "a run that starts whenever this file is loaded" in done.stderr
    assert "below `if __name__ == '__main__':`" in done.stderr
    assert not (tmp_path / "run").exists()
    text = script.read_text().replace("simcluster.run(", "if __name__ == '__main__': simcluster.run(")
    script.write_text(text)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").exists()
