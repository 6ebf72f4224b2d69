"""One tidy table of a sweep: a row per point, with the swept values first, then the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from simcluster.paths.inside import read, write_whole
from simcluster.runs.folder import METRICS, SUMMARY, read_summary
from simcluster.runs.sweep_folder import TABLE_CSV, TABLE_PARQUET
from simcluster.runs.tables import METRIC_COLUMNS, read_table
from simcluster.sweeps.points import Point
from simcluster.sweeps.work import DIED, ERROR

if TYPE_CHECKING:
    import pandas as pd

NOTE_BYTES = 10 << 20

NUMBERS = ("elapsed_s", "steps", "loss", "accuracy", "messages_sent", "bytes_sent", "joules", "price_usd")
"""Copied from summary.json."""


def table(points: Sequence[Point], folders: Sequence[Path], target: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Return the columns point, seed, each swept key, status, the run's numbers and hashes, error, run (its folder's
    name).

    With a *target* such as {"accuracy": 0.9}, also `time_to_target_s`: the time at which it was first reached, else
    empty.
    """
    import pandas as pd

    rows = [_row(point, folder, target) for point, folder in zip(points, folders, strict=True)]
    frame = pd.DataFrame(rows)
    for key in points[0].values:
        # A column of numbers and texts becomes one of texts; lists and mappings are written as one would type them.
        values = frame[key]
        kinds = {bool if isinstance(v, bool) else float if isinstance(v, (int, float)) else type(v) for v in values}
        if kinds not in ({bool}, {float}, {str}):
            frame[key] = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return frame


def write_table(frame: pd.DataFrame, folder: Path) -> None:
    """Write the table as CSV and as Parquet, replacing each atomically."""
    for name, write in ((TABLE_CSV, frame.to_csv), (TABLE_PARQUET, frame.to_parquet)):
        write_whole(folder, name, content=partial(write, index=False))


def _row(point: Point, folder: Path, target: Mapping[str, float] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"point": point.index, "seed": point.seed, **point.values}
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else {}
    row |= {"status": summary.get("status", "failed")} | {name: summary.get(name) for name in NUMBERS}
    staleness = summary.get("staleness") or {}
    row |= {"staleness_mean": staleness.get("mean"), "staleness_max": staleness.get("max")}
    if target:
        row["time_to_target_s"] = _reached_s(folder, target) if summary else None
    row |= {name: summary.get(name) for name in ("weights_sha256", "trace_sha256")}
    return row | {"error": _error(folder, summary), "run": folder.name}


def _error(folder: Path, summary: Mapping[str, Any]) -> str | None:
    if summary:
        error = summary.get("error")
        return f"{error['type']}: {error['message']}" if error else None
    for name in (ERROR, DIED):
        if (folder / name).is_file():
            return read(folder, name, most_bytes=NOTE_BYTES).decode(errors="replace").strip()
    return "never ran"


def _reached_s(folder: Path, target: Mapping[str, float]) -> float | None:
    """Return when rank 0's evaluation first reached every value of *target*; losses must fall, other values rise."""
    metrics = read_table(folder, METRICS, METRIC_COLUMNS)
    reached: list[float] = []
    for name, wanted in target.items():
        rows = metrics[metrics["name"] == f"eval_{name}"]
        good = rows[rows["value"] <= wanted] if name == "loss" else rows[rows["value"] >= wanted]
        if good.empty:
            return None
        reached.append(float(good["time_s"].min()))
    return max(reached)
