"""Read the runs and sweeps below a folder.

The files may come from untrusted places: links are not followed, and all sizes are limited.
"""

from __future__ import annotations

import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from simcluster.errors import UsageError
from simcluster.paths.inside import PARTIAL, listed, open_file, opened
from simcluster.results import Run, load_run, load_sweep
from simcluster.runs.folder import LIVE, LOG_SUFFIX, LOGS, REPORT, SUMMARY, TRACEBACK, read_summary, size_of
from simcluster.runs.sweep.sweep_folder import ANSWER, EXPLORER, POINTS, SWEEP, TABLE_PARQUET
from simcluster.watching.live_file import read_live

MOST_DEPTH = 4
MOST_VISITED = 20_000
MOST_ROWS = 5_000
MOST_KEPT = 10_000
"""Limits on one listing: the depth of folders, entries visited, rows returned, rows cached."""

LOG_BYTES = 64 << 10
"""Limit on the part of a log that the page shows: a longer log is shown from its end."""

PAGES = (REPORT, EXPLORER)
POINT = re.compile("[0-9a-f]{16}")
"""Pattern of the folder name of a sweep's point: a digest of 16 hexadecimal digits."""

TOLD = ("name", "algorithm", "topology", "backend", "seed", "status", "steps", "elapsed_s", "loss", "accuracy")


class RunShelf:
    """The runs and sweeps below *root*. A run's name is its path relative to *root*."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._rows: OrderedDict[tuple[str, int, int], dict[str, Any]] = OrderedDict()

    def rows(self, under: str = "") -> list[dict[str, Any]]:
        """Return a row per run, sweep and what-if below *under*, the latest first.

        Points of a sweep are listed only if *under* is that sweep. Raise UsageError if *under* is
        not a folder below the root.
        """
        parts = self.parts(under)
        swept = self._swept(parts) if self._has(parts, TABLE_PARQUET) else {}
        found = [row for names in self._folders(parts) if (row := self._row(names)) is not None]
        found = [row | {"swept": swept.get(row["id"].rpartition("/")[2], "")} for row in found]
        return sorted(found, key=lambda row: -row["changed_s"])[:MOST_ROWS]

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of the run or sweep *name*. Raise UsageError if there is none."""
        if (row := self._row(self.parts(name))) is None:
            raise UsageError("run", f"nothing in {name!r}", "the folder of a run or a sweep")
        return row

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of the path *name*.

        Raise UsageError unless the path leads to a folder below the root and contains no link.
        """
        parts = tuple(name.split("/")) if name else ()
        if any(part in ("", ".", "..") or "\0" in part or "\\" in part for part in parts):
            raise UsageError("run", repr(name), f"the path of a folder below {self.root}")
        try:
            with opened(self.root, *parts):
                return parts
        except OSError as error:
            raise UsageError("run", f"{name!r} ({error.strerror})", f"a folder below {self.root}") from None

    def run(self, name: str) -> Run:
        """Return the finished run *name*. Raise UsageError if there is none."""
        return load_run(self.root.joinpath(*self.parts(name)))

    def live(self, name: str) -> dict[str, Any] | None:
        """Return the state of the run *name* if it is in progress or was cut off, else None.

        Raise UsageError if the file with the state is damaged.
        """
        try:
            return read_live(self.root.joinpath(*self.parts(name)))
        except ValueError as error:
            raise UsageError(LIVE, str(error), "what a run writes there") from None

    def logs(self, name: str) -> list[str]:
        """Return the names of the logs of the run *name*."""
        parts = self.parts(name)
        with suppress(OSError):
            found = [log for log in listed(self.root, *parts, LOGS) if log.endswith(LOG_SUFFIX)]
            return found + [TRACEBACK] * (TRACEBACK in listed(self.root, *parts))
        return []

    def log(self, name: str, log: str) -> str:
        """Return the last LOG_BYTES of *log*, which must be one of `logs(name)`.

        Raise UsageError for another file.
        """
        if log not in self.logs(name):
            raise UsageError("log", repr(log), f"one of {', '.join(self.logs(name)) or 'none'}")
        inner = () if log == TRACEBACK else (LOGS,)
        with open_file(self.root, *self.parts(name), *inner, log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
            return file.read(LOG_BYTES).decode(errors="replace")

    def _folders(self, start: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the folders below *start* that may hold a run or a sweep, breadth first."""
        waiting = [start]
        visited = 0
        while waiting:
            parts = waiting.pop(0)
            if parts != start:
                yield parts
            if len(parts) - len(start) >= MOST_DEPTH or (parts != start and self._is_one(parts)):
                continue
            with suppress(OSError), opened(self.root, *parts) as place:
                for entry in sorted(os.listdir(place)):
                    visited += 1
                    if visited > MOST_VISITED:
                        return
                    if not entry.startswith((".", PARTIAL)) and _is_folder(entry, place):
                        waiting.append((*parts, entry))

    def _is_one(self, parts: tuple[str, ...]) -> bool:
        """Return whether *parts* lead to a run, sweep or what-if, where the listing stops."""
        return self._has(parts, SWEEP, SUMMARY, LIVE, ANSWER) or bool(self._points(parts))

    def _points(self, parts: tuple[str, ...]) -> list[str]:
        """Return the names of the points of a sweep or a what-if; none for a single run."""
        with suppress(OSError):
            found = listed(self.root, *parts, POINTS)
            return found if all(map(POINT.fullmatch, found)) else []
        return []

    def _has(self, parts: tuple[str, ...], *names: str) -> bool:
        return any(self._stat(parts, name) is not None for name in names)

    def _stat(self, parts: tuple[str, ...], name: str) -> os.stat_result | None:
        with suppress(OSError), opened(self.root, *parts) as place:
            found = os.stat(name, dir_fd=place, follow_symlinks=False)
            return found if stat.S_ISREG(found.st_mode) else None
        return None

    def _row(self, parts: tuple[str, ...]) -> dict[str, Any] | None:
        """Return the row of the folder at *parts*; None if it holds no run, sweep or what-if."""
        about = {"id": "/".join(parts), "pages": [page for page in PAGES if self._has(parts, page)]}
        if (sweep := self._stat(parts, SWEEP)) is not None:
            return about | self._sweep_row(parts, sweep)
        summary, live = self._stat(parts, SUMMARY), self._stat(parts, LIVE)
        answer, points = self._stat(parts, ANSWER), self._points(parts)
        if answer is not None or (points and summary is None):
            changed = answer or self._stat((*parts, POINTS, points[0]), SUMMARY)
            told = {"name": parts[-1], "points": len(points), "changed_s": changed.st_mtime if changed else 0.0}
            return about | told | {"kind": "whatif", "state": "done" if answer else "unfinished", "error": ""}
        if live is not None and (state := self._live_row(parts)) is not None:
            return about | state | {"kind": "run", "changed_s": live.st_mtime}
        if summary is None:
            return None
        return about | self._kept(parts, summary, _summary_row) | {"kind": "run", "changed_s": summary.st_mtime}

    def _kept(
        self, parts: tuple[str, ...], file: os.stat_result, row_of: Callable[[Path], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the cached row of the folder at *parts*, or a new row if *file* has changed."""
        key = ("/".join(parts), file.st_mtime_ns, file.st_size)
        if key not in self._rows:
            try:
                self._rows[key] = row_of(self.root.joinpath(*parts))
            except UsageError as damage:
                self._rows[key] = {"name": parts[-1], "state": "damaged", "error": str(damage)[:1000]}
            if len(self._rows) > MOST_KEPT:
                self._rows.popitem(last=False)
        return self._rows[key]

    def _live_row(self, parts: tuple[str, ...]) -> dict[str, Any] | None:
        try:
            found = read_live(self.root.joinpath(*parts))
        except ValueError as error:
            return {"name": parts[-1], "state": "damaged", "error": str(error)[:1000]}
        if found is None:
            return None
        run = found["run"]
        told = {key: run.get(key) for key in TOLD if key != "status"} | {"accuracy": run.get("eval_accuracy")}
        state = "running" if found["alive"] else "cut off"
        return told | {"steps": run.get("step"), "of_steps": run.get("steps"), "state": state, "error": ""}

    def _swept(self, parts: tuple[str, ...]) -> dict[str, str]:
        """Return name of a point's folder -> its swept values; {} for an unfinished sweep."""
        try:
            sweep = load_sweep(self.root.joinpath(*parts))
            keys = [key for key in sweep.keys if key in sweep.table]
            values = sweep.table[["run", *keys]].to_dict("records")
        except UsageError:
            return {}
        return {
            Path(str(row["run"])).name: ", ".join(f"{key.rpartition('.')[2]}={row[key]}" for key in keys)[:300]
            for row in values
        }

    def _sweep_row(self, parts: tuple[str, ...], sweep: os.stat_result) -> dict[str, Any]:
        told: dict[str, Any] = {"kind": "sweep", "name": parts[-1], "points": len(self._points(parts)), "error": ""}
        told["changed_s"] = sweep.st_mtime
        if (table := self._stat(parts, TABLE_PARQUET)) is None:
            return told | {"state": "unfinished"}
        return told | self._kept(parts, table, _table_row) | {"changed_s": table.st_mtime}


def _summary_row(folder: Path) -> dict[str, Any]:
    summary = read_summary(folder)
    told = {key: summary[key] for key in TOLD} | {"bytes": summary["bytes_sent"], "nodes": size_of(summary)}
    words = summary.get("error", {}).get("message", "")
    return told | {"state": told.pop("status"), "error": str(words)[:1000]}


def _table_row(folder: Path) -> dict[str, Any]:
    found = load_sweep(folder)
    state = "done" if len(found.table) >= found.planned else "interrupted"
    if found.failed:
        state = "failed"
    return {"name": found.name, "points": len(found.table), "keys": found.keys, "state": state}


def _is_folder(name: str, place: int) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    return False
