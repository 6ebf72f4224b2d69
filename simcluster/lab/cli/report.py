"""The command `simcluster report`: write the pages of a run or a sweep again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument


def report(run: Annotated[Path, Argument(metavar="RUN", help="The folder of a run or a sweep.")]) -> None:
    """Write the report of a run or a sweep again.

    For a sweep, write the explorer, too.
    """
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.sweep.sweep_folder import is_sweep

    if is_sweep(run):
        print(*load_sweep(run).write_pages(), sep="\n")
        return
    print(load_run(run).write_report())
