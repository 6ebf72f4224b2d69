"""A finished sweep as its folder tells it: what was swept, the table, the runs, and the pages made of them.

This file knows the names of files. It must not know how a sweep is run, nor what its pages say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simcluster.errors import Problem, UsageError
from simcluster.results.folder import CONFIG, REPORT, SUMMARY, Run

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.results.sweep_plots import SweepPlots
    from simcluster.tracking import Exported

SWEEP, POINTS, LOGS, EXPLORER = "sweep.yaml", "points", "logs", "explorer.html"
TABLE_CSV, TABLE_PARQUET = "table.csv", "table.parquet"


class SweepFolder:
    """A finished sweep: its *folder*, *name*, the *keys* that were swept, and `table` (pandas), one row a point."""

    def __init__(self, folder: Path, name: str, keys: Sequence[str]) -> None:
        self.folder, self.name, self.keys = folder, name, list(keys)

    @cached_property
    def table(self) -> pd.DataFrame:
        import pandas as pd

        try:
            return pd.read_parquet(self.folder / TABLE_PARQUET)
        except (OSError, ValueError) as error:
            expected = f"the table of a sweep that ended ({error})"
            raise UsageError(Problem(TABLE_PARQUET, f"something else in {self.folder}", expected)) from error

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
        from simcluster.results.sweep_plots import SweepPlots

        return SweepPlots(self.table, self.keys, self.runs)

    @property
    def configs(self) -> list[Mapping[str, Any] | None]:
        """The resolved experiment of each point; None where there is no run."""
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, which thousands of points feel
        return [
            yaml.load((folder / CONFIG).read_bytes(), loader)  # noqa: S506  # it is the safe one
            if (folder / SUMMARY).is_file()
            else None
            for folder in self.folders
        ]

    @property
    def failed(self) -> int:
        """Points whose run failed or was never had."""
        return int((self.table["status"] != "done").sum())

    def write_pages(self) -> list[Path]:
        """Writes (again) report.html and explorer.html, and returns their paths."""
        from simcluster.results import explorer, sweep_report

        reported = [(folder / REPORT).is_file() for folder in self.folders]
        pages = {
            REPORT: sweep_report.render(self.name, self.table, self.keys, self.plot),
            EXPLORER: explorer.render(self.name, self.table, self.keys, reported, self.configs),
        }
        for name, text in pages.items():
            partial = self.folder / f".partial-{name}"
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, self.folder / name)
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
        head = yaml.safe_load((folder / SWEEP).read_bytes())
        name, keys = str(head["experiment"]), [str(key) for axis in head["axes"] for key in axis]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UsageError(Problem(SWEEP, f"something else in {folder}", "what a sweep writes there")) from error
    return SweepFolder(folder, name, keys)
