"""Read the directory of a finished sweep: its swept keys, its table and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

SWEEP = "sweep.yaml"
ANSWER = "whatif.json"
POINTS = "points"
LOGS = "logs"
EXPLORER = "explorer.html"
TABLE_CSV, TABLE_PARQUET = "table.csv", "table.parquet"

TABLE_COLUMNS = {"run": "OTU", "status": "OTU"}


@dataclass(repr=False, eq=False)
class SweepFolder:
    """A finished or interrupted sweep in *folder*, which swept *keys*.

    `table` is a pandas table with one row per point. After an interruption it has only the finished
    ones of the *planned* points.
    """

    folder: Path
    name: str
    keys: list[str]
    planned: int

    @cached_property
    def table(self) -> pd.DataFrame:
        return read_table(self.folder, TABLE_PARQUET, TABLE_COLUMNS, "the table of a sweep that ended")

    @property
    def columns(self) -> list[str]:
        """The names of the columns of *keys* in `table`; the name for a quantity has its unit."""
        return [column_of(key, list(self.table.columns)) for key in self.keys]

    @property
    def as_text(self) -> pd.DataFrame:
        """The table with swept quantities as strings with a unit, in columns named by their keys."""
        return as_text(self.table, self.keys)

    @property
    def folders(self) -> list[Path]:
        """The directory of each point's run; equal points share a run."""
        return [self.folder / POINTS / Path(run).name for run in self.table["run"]]

    @cached_property
    def runs(self) -> Sequence[RunFolder | None]:
        """The run of each point; None for a point without a run."""
        return [RunFolder(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def configs(self) -> list[Mapping[str, Any] | None]:
        """The resolved experiment of each point; None for a point without a run."""
        return [read_config(folder) if (folder / SUMMARY).is_file() else None for folder in self.folders]

    @property
    def failed(self) -> int:
        """The number of points with a failed run or without a run."""
        return int((self.table["status"] != "done").sum())

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}: {len(self.table)} points, {self.failed} failed)"


def is_sweep(folder: Path) -> bool:
    """Return whether *folder* is the directory of a sweep."""
    return (folder / SWEEP).is_file()


def read_sweep(folder: Path) -> tuple[str, list[str], int]:
    """Return the name, the swept keys and the number of points of the sweep in *folder*.

    Raise UsageError if a file is missing or invalid.
    """
    missing = [name for name in (SWEEP, TABLE_PARQUET) if not (folder / name).is_file()]
    if missing:
        raise UsageError([Problem(name, f"nothing in {folder}", "this file of a sweep that ended") for name in missing])
    try:
        head = loads(read(folder, SWEEP, most_bytes=MAX_BYTES).decode(), str(folder / SWEEP)).data
        return str(head["experiment"]), [str(key) for axis in head["axes"] for key in axis], int(head["points"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(SWEEP, f"something else in {folder}", "what a sweep writes there") from error
