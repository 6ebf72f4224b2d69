"""Scripts that end badly: the error is the script's own, with its line; what a rank waits for is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcluster.errors import Deadlock, NodeFailed, RunError, UsageError
from simcluster.experiment.read.read import read_experiment
from tests.core.scripts.running import pair, printed, run_script

BEGIN = "import os, sys, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"


def end_of(text: str, tmp_path: Path) -> RunError:
    """Return the error of a run on two nodes of a script that begins a group and then does *text*."""
    (tmp_path / "script.py").write_text(BEGIN + text)
    with pytest.raises(RunError) as caught:
        run_script(tmp_path / "script.py", tmp_path / "run", pair())
    return caught.value


def test_an_exception_is_the_scripts_own_and_names_its_line(tmp_path: Path) -> None:
    error = end_of(
        "def work():\n    if rank == 1:\n        raise KeyError('no')\n    dist.barrier()\nwork()\n", tmp_path
    )
    assert isinstance(error, NodeFailed)
    assert str(error) == "rank 1 (b) failed: KeyError: 'no'"
    frames = [note for note in error.__notes__ if note.startswith("  File ")]
    assert [frame.splitlines()[0] for frame in frames] == [
        f'  File "{tmp_path / "script.py"}", line 8, in <module>',
        f'  File "{tmp_path / "script.py"}", line 6, in work',
    ]


def test_a_call_with_a_rank_that_has_ended_fails_as_under_gloo(tmp_path: Path) -> None:
    error = end_of("if rank == 0:\n    dist.all_reduce(torch.ones(2))\n", tmp_path)
    where = f"{tmp_path / 'script.py'}:5"
    assert str(error) == f"rank 0 (a) failed: RuntimeError: {where}: all_reduce 1: rank 1 (b) has ended"


def test_a_deadlock_is_told_with_the_scripts_lines(tmp_path: Path) -> None:
    error = end_of("dist.recv(torch.ones(2), 1 - rank)\n", tmp_path)
    assert isinstance(error, Deadlock)
    assert [wait.partition(" at ")[2] for wait in error.waits] == [f"{tmp_path / 'script.py'}:4 in recv 1"] * 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("os._exit(3)\n", "its process ended with exit code 3"),
        ("sys.exit(4)\n", "the script ended with exit code 4"),
        ("os.kill(os.getpid(), 9)\n", "its process ended with exit code -9"),
    ],
)
def test_the_exit_code_of_a_script_that_leaves_is_told(text: str, told: str, tmp_path: Path) -> None:
    assert str(end_of(text, tmp_path)).endswith(told)


def test_a_script_that_exits_with_0_is_done(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BEGIN + "print('here', rank)\nsys.exit()\n")
    run = run_script(tmp_path / "script.py", tmp_path / "run", pair())
    assert run.summary["status"] == "done"
    assert printed(tmp_path / "run") == ["here 0"]
    assert printed(tmp_path / "run", "b") == ["here 1"]


def test_other_world_sizes_are_refused_with_the_clusters(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import torch.distributed as dist\ndist.init_process_group(world_size=8)\n")
    with pytest.raises(NodeFailed, match=r"init_process_group\(world_size=8\): expected 2, as the cluster has it"):
        run_script(tmp_path / "script.py", tmp_path / "run", pair())


def test_a_file_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file, expected a Python file"):
        run_script(tmp_path / "nothing.py", tmp_path / "run", pair())
    assert not (tmp_path / "run").exists()


def test_the_workload_of_scripts_is_none_for_an_algorithm() -> None:
    with pytest.raises(UsageError, match="found 'script', expected the workload: one of gpt, mnist_cnn"):
        read_experiment("quickstart", workload="script")
