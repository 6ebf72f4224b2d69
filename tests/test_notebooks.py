"""Notebooks run from top to bottom in a kernel of their own."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_clean(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the kernel client's own
        import jupytext
        from nbclient import NotebookClient

        notebook = jupytext.read(path)
        NotebookClient(notebook, timeout=150, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("The same weights to the bit" in output.get("text", "") for output in outputs)
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs), "a notebook prints no warnings"
