"""Notebooks run from top to bottom, each in a fresh namespace and folder, and their answers hold against the numbers.

Stored notebooks have the same sources. `make notebooks-check` compares outputs, too: not here, since the last bits of
what is learned differ between processors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.__main__ import differences
from tests.notebooks.claimed import CLAIMS
from tests.notebooks.close import close_outlines, outline
from tests.notebooks.execution import execute, kernel
from tests.notebooks.outputs import figures_of, is_measured, problems_of, tidy
from tests.notebooks.source import SOURCES, made_from, read, sources
from tests.support.levels import sample_of
from tests.support.root import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # the kernel client's own
INSTALLS = re.compile(r"try:\n    import simcluster\nexcept ModuleNotFoundError:\n.*%pip install .*", re.DOTALL)


def by_name(path: Path) -> str:
    return path.stem


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with kernel() as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("path", sample_of(SOURCES, 5), ids=by_name)
def test_a_notebook_runs_and_its_answer_holds(path: Path, client: Any, tmp_path: Path) -> None:
    notebook = read(path)
    claims = "from tests.notebooks.claimed import check as check_claims"
    execute(client, notebook, tmp_path, claims, f"check_claims({path.stem!r}, globals())")
    tidy(notebook)
    assert sum(len(figures_of(cell)) for cell in notebook.cells) >= 1
    assert not problems_of(notebook), "no path of this machine, no warning"
    assert {entry.name for entry in tmp_path.iterdir()} <= {"runs"}, "what it writes is what git ignores"


@pytest.mark.parametrize("path", SOURCES, ids=by_name)
def test_a_notebook_asks_installs_and_answers_in_words(path: Path) -> None:
    title, install, *_, answer = read(path).cells
    assert re.match(r"# .*\?$", title.source, re.MULTILINE), "its title is a question"
    assert INSTALLS.fullmatch(install.source), "its first cell installs"
    assert answer.source.startswith("## The answer")
    assert "assert " not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SOURCES, ids=by_name)
def test_a_stored_notebook_has_its_sources_and_its_outputs(path: Path) -> None:
    import nbformat

    stored = nbformat.read(made_from(path), 4)
    nbformat.validate(stored)
    assert sources(stored) == sources(read(path)), f"make it again: python -m tests.notebooks {path.stem}"
    assert not problems_of(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)


@pytest.mark.slow
def test_a_claim_that_is_not_true_fails(client: Any, tmp_path: Path) -> None:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("elapsed_s = {'data sheet': 1, 'truth': 1}")])
    check = "from tests.notebooks.claimed import check; check('measured_numbers', globals())"
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(client, notebook, tmp_path, check)
    execute(client, nbformat.v4.new_notebook(cells=[]), tmp_path, "assert 'elapsed_s' not in globals()")


def notebook(text: str, kernels: str = "avx2", tags: tuple[str, ...] = ()) -> Any:
    """Return a notebook whose only cell has printed *text*."""
    import nbformat

    output = nbformat.v4.new_output("stream", text=text)
    cell = nbformat.v4.new_code_cell("print(x)", id="cell-0", outputs=[output], metadata={"tags": [*tags]})
    return nbformat.v4.new_notebook(cells=[cell], metadata={"simcluster": {"numerics": kernels}})


def test_an_output_that_changed_is_named_and_a_measured_one_may_change() -> None:
    [found] = differences(notebook("1.5\n"), notebook("2.5\n"))
    assert "cell-0 differs" in found
    assert "-1.5" in found
    assert "+2.5" in found
    assert not list(differences(*(notebook(text, tags=("measured",)) for text in ("1.5\n", "2.5\n"))))


def test_with_other_kernels_words_are_equal_and_numbers_close() -> None:
    stored = notebook("loss  0.5421  weights b8af7f84cb8d\n", "avx2")
    nearly = "loss 0.5422  weights 77af7f84cb00\n"
    assert list(differences(stored, notebook(nearly, "avx2")))
    assert not list(differences(stored, notebook(nearly, "avx512")))
    assert list(differences(stored, notebook("loss 0.6422  weights b8af7f84cb8d\n", "avx512")))
    assert list(differences(stored, notebook("gain 0.5421  weights b8af7f84cb8d\n", "avx512")))


def test_outlines_are_close_by_count_and_range() -> None:
    def figure(*y: float) -> Any:
        return {"data": [{"type": "scatter", "name": "ring", "y": list(y)}]}

    stored = outline(figure(1.0, 2.0, 10.0))
    assert stored == [["scatter", "ring", {"/y": [3, 1.0, 10.0]}]]
    assert close_outlines(stored, outline(figure(1.5, 2.0, 10.5)))
    assert not close_outlines(stored, outline(figure(1.0, 2.0, 12.0)))
    assert not close_outlines(stored, outline(figure(1.0, 10.0)))


def test_every_notebook_has_claims_and_only_cells_that_run_on_this_machine_are_measured() -> None:
    assert sorted(CLAIMS) == [path.stem for path in SOURCES]
    for path in SOURCES:
        measured = [cell.source for cell in read(path).cells if is_measured(cell)]
        assert bool(measured) == ('"sockets"' in path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_documentation_lists_every_notebook() -> None:
    text = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", text)) == [path.stem for path in SOURCES]
