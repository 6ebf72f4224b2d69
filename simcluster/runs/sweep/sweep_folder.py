"""A finished sweep as its folder tells it: what was swept, the table, the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.documents.yaml import MAX_BYTES, loads
from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import read
from simcluster.runs.folder import SUMMARY, RunFolder, read_config, read_table
from simcluster.runs.sweep.swept_columns import as_text, column_of

if TYPE_CHECKING:
    import pandas as pd

SWEEP, ANSWER, POINTS, LOGS, EXPLORER = "sweep.yaml", "whatif.json", "points", "logs", "explorer.html"
TABLE_CSV, TABLE_PARQUET = "table.csv", "table.parquet"

TABLE_COLUMNS = {"run": "OTU", "status": "OTU"}


class SweepFolder:
    """A sweep that ended: its *folder*, *name*, the *keys* that were swept, and `table` (pandas), one row a point.

    One that was interrupted has a row for each of the *planned* points that was kept.
    """

    def __init__(self, folder: Path, name: str, keys: Sequence[str], planned: int) -> None:
        self.folder, self.name, self.keys = folder, name, list(keys)
        self.planned = planned

    @cached_property
    def table(self) -> pd.DataFrame:
        return read_table(self.folder, TABLE_PARQUET, TABLE_COLUMNS, "the table of a sweep that ended")

    @property
    def columns(self) -> list[str]:
        """The column of each of *keys* in `table`: that of a quantity also has its unit."""
        return [column_of(key, list(self.table.columns)) for key in self.keys]

    @property
    def as_text(self) -> pd.DataFrame:
        """The table with swept quantities as people write them, in columns that are called by their keys."""
        return as_text(self.table, self.keys)

    @property
    def folders(self) -> list[Path]:
        """Of each point's run; equal points share one."""
        return [self.folder / POINTS / Path(run).name for run in self.table["run"]]

    @cached_property
    def runs(self) -> Sequence[RunFolder | None]:
        """The run of each point; None where there is none."""
        return [RunFolder(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def configs(self) -> list[Mapping[str, Any] | None]:
        """The resolved experiment of each point; None where there is no run."""
        return [read_config(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def failed(self) -> int:
        """Number of points with a failed run or none."""
        return int((self.table["status"] != "done").sum())

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}: {len(self.table)} points, {self.failed} failed)"


def is_sweep(folder: Path) -> bool:
    """Whether *folder* is one of a sweep."""
    return (folder / SWEEP).is_file()


def read_sweep(folder: Path) -> tuple[str, list[str], int]:
    """Return the name, the swept keys and the number of points of an ended sweep in *folder*. Raises UsageError."""
    missing = [name for name in (SWEEP, TABLE_PARQUET) if not (folder / name).is_file()]
    if missing:
        raise UsageError([Problem(name, f"nothing in {folder}", "this file of a sweep that ended") for name in missing])
    try:
        head = loads(read(folder, SWEEP, most_bytes=MAX_BYTES).decode(), str(folder / SWEEP)).data
        return str(head["experiment"]), [str(key) for axis in head["axes"] for key in axis], int(head["points"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(Problem(SWEEP, f"something else in {folder}", "what a sweep writes there")) from error
