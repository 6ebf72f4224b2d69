"""Executes notebooks in one kernel: torch is imported once, not once per notebook."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.root import ROOT
from tests.support.socket_runs import GUARD_S


@contextmanager
def kernel() -> Iterator[Any]:
    """Yield the client of a new kernel, whose figures are data only, and which can import the tests."""
    import nbformat
    from nbclient import NotebookClient

    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=GUARD_S, kernel_name="python3", record_timing=False)
    with (
        mock.patch.dict(os.environ, PLOTLY_RENDERER="plotly_mimetype", PYTHONPATH=paths),
        client.setup_kernel(),
    ):
        yield client


def execute(client: Any, notebook: Any, folder: Path, *after: str) -> None:
    """Execute *notebook* in *folder* with nothing left of those before it; then the lines *after*, which are no part of
    it. Raise CellExecutionError if a cell fails.
    """
    import nbformat

    before = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}")
    end = [nbformat.v4.new_code_cell(line) for line in (*after, f"%cd -q {ROOT}")]  # the folder may be removed next
    client.nb = nbformat.v4.new_notebook(cells=[before, *notebook.cells, *end])
    client.reset_execution_trackers()
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
