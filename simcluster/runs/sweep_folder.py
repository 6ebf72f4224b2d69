"""A finished sweep as its folder tells it: what was swept, the table, the runs, and the pages made of them.

This file knows the names of files. It must not know how a sweep is run, nor what its pages say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.documents.yaml import MAX_BYTES, loads
from simcluster.errors import Problem, UsageError
from simcluster.inside import read, write_whole
from simcluster.runs.folder import REPORT, SUMMARY, Run, read_config
from simcluster.runs.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.reports.sweep_plots import SweepPlots
    from simcluster.tracking import Exported

SWEEP, POINTS, LOGS, EXPLORER = "sweep.yaml", "points", "logs", "explorer.html"
TABLE_CSV, TABLE_PARQUET = "table.csv", "table.parquet"

TABLE_COLUMNS = {"run": "OTU", "status": "OTU"}


class SweepFolder:
    """A finished sweep: its *folder*, *name*, the *keys* that were swept, and `table` (pandas), one row a point."""

    def __init__(self, folder: Path, name: str, keys: Sequence[str]) -> None:
        self.folder, self.name, self.keys = folder, name, list(keys)

    @cached_property
    def table(self) -> pd.DataFrame:
        return read_table(self.folder, TABLE_PARQUET, TABLE_COLUMNS, "the table of a sweep that ended")

    @property
    def folders(self) -> list[Path]:
        """Of each point's run; equal points share one."""
        return [self.folder / POINTS / Path(run).name for run in self.table["run"]]

    @cached_property
    def runs(self) -> list[Run | None]:
        """The run of each point; None where there is none."""
        return [Run(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @cached_property
    def plot(self) -> SweepPlots:
        """Plotly figures: against a swept key, a grid of two, convergence."""
        from simcluster.reports.sweep_plots import SweepPlots

        return SweepPlots(self.table, self.keys, self.runs)

    @property
    def configs(self) -> list[Mapping[str, Any] | None]:
        """The resolved experiment of each point; None where there is no run."""
        return [read_config(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def failed(self) -> int:
        """Points whose run failed or was never had."""
        return int((self.table["status"] != "done").sum())

    def write_pages(self) -> list[Path]:
        """Writes (again) report.html and explorer.html, and returns their paths."""
        from simcluster.reports import explorer, sweep_report

        reported = [(folder / REPORT).is_file() for folder in self.folders]
        pages = {
            REPORT: sweep_report.render(self.name, self.table, self.keys, self.plot),
            EXPLORER: explorer.render(self.name, self.table, self.keys, reported, self.configs),
        }
        for name, text in pages.items():
            write_whole(self.folder, name, content=text.encode())
        return [self.folder / name for name in pages]

    def track(self, to: str, into: str | None = None) -> Exported:
        """Writes every run to the tracker *to*, all under this folder's name: see `Run.track`."""
        from simcluster.tracking import export

        return export(self, to, into)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r}: {len(self.table)} points, {self.failed} failed)"


def is_sweep(folder: Path) -> bool:
    """Whether *folder* is one of a sweep."""
    return (folder / SWEEP).is_file()


def load_sweep(path: str | os.PathLike[str]) -> SweepFolder:
    """The sweep in folder *path*. Raises UsageError for what is not the folder of a sweep that has ended."""
    folder = Path(path)
    missing = [name for name in (SWEEP, TABLE_PARQUET) if not (folder / name).is_file()]
    if missing:
        raise UsageError([Problem(name, f"nothing in {folder}", "this file of a sweep that ended") for name in missing])
    try:
        head = loads(read(folder, SWEEP, most_bytes=MAX_BYTES).decode(), str(folder / SWEEP)).data
        name, keys = str(head["experiment"]), [str(key) for axis in head["axes"] for key in axis]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(Problem(SWEEP, f"something else in {folder}", "what a sweep writes there")) from error
    return SweepFolder(folder, name, keys)
