"""The user's own lines of a failure: all of theirs, none of ours, on any machine; and where they are shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.documents.own_frames import is_users, own_frames
from simcluster.errors import NodeFailed

ALGORITHM = """
from other import broken

async def mine(node, replica):
    table = {}
    if node.rank == 1:
        broken(table)
    await node.recv(1)
"""


@pytest.fixture(autouse=True)
def no_other_yet() -> Iterator[None]:
    """Each test has a module called other in its own folder."""
    yield
    sys.modules.pop("other", None)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/simcluster/my_algo.py", True),
        ("/home/me/my_algo.py", True),
        ("/tmp/x/files/home/me/my_algo.py", True),
        ("/opt/simcluster/experiment/node.py", False),
        ("/opt/simcluster_backends/common/node.py", False),
        ("/usr/lib/python3.11/asyncio/tasks.py", False),
        ("/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_a_file_is_the_users_unless_it_is_installed_or_ours(file: str, expected: bool) -> None:
    assert is_users(file) is expected


def test_only_the_last_traceback_counts_and_text_without_one_has_no_frames() -> None:
    frames = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/{0}.py", line 3, in {0}\n    {0}()\n'
        '  File "/usr/lib/python3.11/asyncio/tasks.py", line 9, in step\n    run()\n'
        "ValueError: no\n"
    )
    details = frames.format("first") + "\nDuring handling of the above exception, another occurred:\n\n"
    assert own_frames(details + frames.format("second")) == [
        '  File "/home/me/second.py", line 3, in second\n    second()'
    ]
    assert own_frames("killed") == []


@pytest.mark.parametrize("backend", ["sim", "sockets"])
def test_a_failed_run_shows_the_users_lines_on_the_terminal(command: Any, tmp_path: Path, backend: str) -> None:
    (tmp_path / "algo.py").write_text(ALGORITHM)
    (tmp_path / "other.py").write_text("def broken(table):\n    return table['missing']\n")
    code, _, err = command(
        "run", "quickstart", "--algorithm", "algo.py:mine", "--backend", backend, "--no-report", "--out", "failed"
    )
    assert code == 1
    lines = err[err.index("error: ") :].splitlines()
    assert lines[0] == "error: NodeFailed: rank 1 (mini2) failed: KeyError: 'missing'"
    shown = [line.strip() for line in lines[1 : lines.index("seed: 0")] if set(line.strip()) - set("^~")]
    assert shown == [
        f'File "{tmp_path / "algo.py"}", line 7, in mine', "broken(table)",
        f'File "{tmp_path / "other.py"}", line 2, in broken', "return table['missing']",
    ]  # fmt: skip
    assert (tmp_path / "failed" / "traceback.txt").read_text().count("simcluster") > 1, "the whole one is kept"


def test_a_notebook_and_python_show_the_users_lines_and_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "algo.py").write_text(ALGORITHM)
    (tmp_path / "other.py").write_text("def broken(table):\n    return table['missing']\n")
    with pytest.raises(NodeFailed) as caught:
        simcluster.run("quickstart", algorithm=f"{tmp_path / 'algo.py'}:mine", out=tmp_path / "run", report=False)
    shown = "\n".join(caught.value._render_traceback_())
    assert shown.startswith("NodeFailed: rank 1 (mini2) failed: KeyError: 'missing'")
    assert f'File "{tmp_path / "other.py"}", line 2, in broken' in shown
    assert "simcluster/experiment" not in shown
    assert f"run folder: {tmp_path / 'run'}" in shown
    below = [frame.path.name for frame in caught.traceback]
    assert below == [Path(__file__).name, "errors.py"], "no frames below the function that was called"
