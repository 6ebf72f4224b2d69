"""Notebooks run from top to bottom, each in a fresh namespace and folder, and end by holding their answer to numbers.

They share one kernel, that which their own metadata ask for: torch is imported once, not once each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.root import ROOT
from tests.support.socket_runs import GUARD_S

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
PLOTLY = "application/vnd.plotly.v1+json"

pytestmark = pytest.mark.filterwarnings("ignore")  # the kernel client's own


def read(path: Path) -> Any:
    import jupytext

    return jupytext.read(path)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    from nbclient import NotebookClient

    client = NotebookClient(read(NOTEBOOKS[0]), timeout=GUARD_S)
    with client.setup_kernel():
        yield client


def execute(client: Any, notebook: Any, folder: Path) -> list[Any]:
    """All outputs of *notebook*, run in *folder* with nothing left of those before it."""
    import nbformat

    begin = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}")
    client.nb = nbformat.v4.new_notebook(cells=[begin, *notebook.cells])
    client.reset_execution_trackers()
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_asks_answers_and_holds_its_answer_to_the_numbers(path: Path, kernel: Any, tmp_path: Path) -> None:
    notebook = read(path)
    assert notebook.metadata["kernelspec"] == read(NOTEBOOKS[0]).metadata["kernelspec"]
    title, answer, check = notebook.cells[0], notebook.cells[-2], notebook.cells[-1]
    assert re.match(r"# .*\?$", title.source, re.MULTILINE), "its title is a question"
    assert answer.source.startswith("## The answer")
    assert "assert " in check.source

    outputs = execute(kernel, notebook, tmp_path)
    assert sum(PLOTLY in output.get("data", {}) for output in outputs) >= 2
    assert not any(output.get("name") == "stderr" for output in outputs), "a notebook prints no warnings"
    assert {entry.name for entry in tmp_path.iterdir()} <= {"runs"}, "what it writes is what git ignores"


def test_a_notebook_whose_answer_is_no_longer_true_fails(kernel: Any, tmp_path: Path) -> None:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    execute(kernel, nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("left = 1")]), tmp_path)
    untrue = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 'left' in globals()")])
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(kernel, untrue, tmp_path)


def test_the_documentation_lists_every_notebook() -> None:
    text = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(\.\./notebooks/(\w+\.py)\)", text)) == [path.name for path in NOTEBOOKS]
