"""The notebooks as they are written: percent files, read as notebooks without outputs and without anything random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.root import ROOT

FOLDER = ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
MEASURED = "measured"
"""The tag of a cell whose outputs depend on the machine and its load."""


def read(path: Path) -> Any:
    """Return the notebook of the percent file *path*. Cells are named by their place, the language without version."""
    import jupytext

    notebook = jupytext.read(path, fmt="py:percent")
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"{path.stem.replace('_', '-')}-{index}"
    language = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
    notebook["metadata"] = {"kernelspec": notebook.metadata["kernelspec"], "language_info": language}
    notebook.update(nbformat=4, nbformat_minor=5)
    return notebook


def sources(notebook: Any) -> list[tuple[str, str, list[str]]]:
    """Return (kind, source, tags) of each cell."""
    return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]


def made_from(path: Path) -> Path:
    """Return the path of the notebook that is made from the percent file *path*."""
    return path.with_suffix(".ipynb")
