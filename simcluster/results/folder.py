"""Writes the run folder and reads it back: config, summary, metrics, trace, report, checkpoints.

This file knows files and their names. It must not know a backend, and leaves what is drawn to plots and
report.

Everything is first written whole under a name of its own beside its place, and only then renamed, so a full
disk leaves no half file under a final name and an earlier run as it was. pandas and plotly are imported where
they are used: together they take longer to import than most commands run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from simcluster.errors import Problem, RunError, UsageError
from simcluster.results.record import RunRecord, Span
from simcluster.results.summary import summarize
from simcluster.results.trace import chrome_trace, spans_of

if TYPE_CHECKING:
    import pandas as pd

    from simcluster.results.plots import RunPlots
    from simcluster.topology import Topology

CONFIG, SUMMARY, METRICS = "config.yaml", "summary.json", "metrics.parquet"
TRACE, REPORT, CHECKPOINTS, LOGS = "trace.json", "report.html", "checkpoints", "logs"
NEEDED: Final = (CONFIG, METRICS, TRACE, SUMMARY)
PARTIAL: Final = ".partial-"


class FolderError(RunError):
    """The run folder could not be written; *folder* is its path."""

    def __init__(self, folder: Path, error: OSError) -> None:
        super().__init__(f"cannot write the run folder {folder}: {error.strerror or error}")
        self.folder = str(folder)


class Run:
    """A run as its folder tells it. The summary is read at once, everything else when it is first asked
    for.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raises UsageError, naming everything that is missing, if *folder* is not a complete run folder."""
        self.folder = Path(folder)
        _check_complete(self.folder)
        self.summary: dict[str, Any] = _read_summary(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved experiment: enough to repeat the run."""
        content = self._read(CONFIG, lambda raw: yaml.safe_load(raw))
        if not isinstance(content, dict):
            raise _damaged(self.folder / CONFIG, "a mapping")
        return content

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per number that a node recorded: time_s, step, node, name, value; by time, then rank."""
        import pandas as pd

        try:
            return pd.read_parquet(self.folder / METRICS)
        except (OSError, ValueError) as error:
            raise _damaged(self.folder / METRICS, f"a Parquet table ({error})") from error

    @cached_property
    def trace(self) -> dict[str, Any]:
        """The Chrome trace: traceEvents and otherData."""
        content: dict[str, Any] = self._read(TRACE, msgspec.json.decode)
        return content

    @cached_property
    def spans(self) -> list[tuple[int, Span]]:
        """(rank, span) for all that the nodes did, by rank, kind and start; times to the nanosecond."""
        return spans_of(self.trace)

    @cached_property
    def plot(self) -> RunPlots:
        """Plotly figures of this run: convergence, timeline, busy, links, staleness."""
        from simcluster.results.plots import RunPlots

        return RunPlots(self)

    @property
    def label(self) -> str:
        """A short name that tells runs of one experiment apart."""
        return "{name}, {algorithm} on {topology}, {backend}, seed {seed}".format(**self.summary)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}: {self.label}, {self.summary['status']})"

    def _read(self, name: str, decode: Callable[[bytes], Any]) -> Any:
        try:
            return decode((self.folder / name).read_bytes())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _damaged(self.folder / name, f"a file that can be read ({error})") from error


def load_run(path: str | os.PathLike[str]) -> Run:
    """The run in folder *path*. Raises UsageError for what is not a complete run folder."""
    return Run(path)


def default_folder(name: str, algorithm: str, backend: str, seed: int, root: str = "runs") -> Path:
    """Where a run goes if nobody says otherwise: runs/<name>-<algorithm>-<backend>-seed<seed>."""
    # An algorithm may be a path such as my/algo.py:train; its last part says enough and makes one folder.
    parts = (name, algorithm.replace("\\", "/").rsplit("/", 1)[-1], backend, f"seed{seed}")
    return Path(root) / "-".join("".join(c if c.isalnum() or c in "._+" else "_" for c in part) for part in parts)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raises UsageError if *folder* holds anything but an earlier run, or cannot be written: call it before a run."""
    folder = Path(folder)
    above = next((place for place in (folder, *folder.absolute().parents) if place.exists()), Path("/"))
    if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
        raise UsageError(Problem("out", f"{folder}, but {above} cannot be written", "a folder that can be"))
    if not folder.exists():
        if above.is_dir():
            return
        raise UsageError(Problem("out", f"{folder}, but {above} is a file", "a folder, or a name that is free"))
    if not folder.is_dir():
        raise UsageError(Problem("out", f"the file {folder}", "a folder, or a name that is free"))
    names = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in names if name not in (CHECKPOINTS, LOGS) and not name.startswith(PARTIAL)]
    if foreign and not _is_summary(folder / SUMMARY):
        some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise UsageError(
            Problem(
                "out",
                f"{folder} with {some}",
                "a run folder (with our summary.json), an empty or a new folder",
            )
        )


def write_run(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    topology: Topology,
    record: RunRecord,
    version: str,
    *,
    checkpoints: Mapping[str, bytes] | None = None,
    report: bool = True,
) -> Run:
    """Writes everything *record* says to *folder* and returns it as a Run.

    An earlier run in *folder* is replaced, files that are not ours stay. *checkpoints* (file name to content)
    replace those of the earlier run; None leaves that subfolder to whoever wrote into it during the run. A
    report takes 5 MB: a sweep may do without. Raises UsageError if *folder* holds something else, FolderError
    if it cannot be written.
    """
    folder = Path(folder)
    check_folder(folder)
    summary = summarize(config, topology, record, version)
    writers: dict[str, Callable[[Path], object]] = {
        CONFIG: partial(_write_yaml, dict(config)),
        METRICS: partial(_write_metrics, record),
        TRACE: partial(_write_trace, chrome_trace(record, _description(summary))),
        SUMMARY: partial(_write_json, summary),
    }
    if checkpoints is not None:
        writers[CHECKPOINTS] = partial(_write_checkpoints, checkpoints)
    _replace(folder, writers)
    # The report of an earlier run must not stay beside the numbers of this one, even if the new report fails.
    (folder / REPORT).unlink(missing_ok=True)
    run = Run(folder)
    if report:
        write_report(run, topology)
    return run


def write_report(run: Run, topology: Topology) -> Path:
    """Writes (again) the report of *run* and returns its path. Raises FolderError if that fails."""
    from simcluster.results.report import render

    page = render(run, topology)
    _replace(run.folder, {REPORT: lambda path: path.write_text(page, encoding="utf-8")})
    return run.folder / REPORT


def _replace(folder: Path, writers: Mapping[str, Callable[[Path], object]]) -> None:
    """Lets each writer write beside its final name, then renames all; on an error, none."""
    staged = {name: folder / f"{PARTIAL}{name}" for name in writers}
    try:
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            _remove(staged[name])
            write(staged[name])
        for name, path in staged.items():
            if path.is_dir():
                _remove(folder / name)
            path.replace(folder / name)
    except OSError as error:
        for path in staged.values():
            _remove(path)
        raise FolderError(folder, error) from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def _write_yaml(content: dict[str, Any], path: Path) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8")


def _write_json(content: Mapping[str, Any], path: Path) -> None:
    # msgspec writes floats so that they read back to the same bits, and NaN and infinities, which JSON lacks,
    # as null.
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _write_trace(trace: Mapping[str, Any], path: Path) -> None:
    """One event a line, so that two traces can be compared with the usual tools."""
    rest = {key: value for key, value in trace.items() if key != "traceEvents"}
    with path.open("wb") as file:
        file.write(b'{"traceEvents":[\n')
        for index, event in enumerate(trace["traceEvents"]):
            file.write((b",\n" if index else b"") + msgspec.json.encode(event))
        file.write(b"\n]," + msgspec.json.encode(rest)[1:] + b"\n")


def _write_metrics(record: RunRecord, path: Path) -> None:
    import pandas as pd

    rows = sorted(
        (
            (metric.time_s, node.rank, index, metric)
            for node in record.nodes
            for index, metric in enumerate(node.metrics)
        ),
        key=lambda row: row[:3],
    )
    columns = list(zip(*(row[3] for row in rows), strict=True)) or [()] * 5
    kinds = {"time_s": "float64", "step": "int64", "node": "str", "name": "str", "value": "float64"}
    frame = pd.DataFrame(
        {name: pd.Series(list(column), dtype=kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)}
    )
    frame.to_parquet(path, index=False)


def _write_checkpoints(checkpoints: Mapping[str, bytes], path: Path) -> None:
    path.mkdir()
    for name, content in checkpoints.items():
        (path / name).write_bytes(content)


def _description(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("name", "backend", "algorithm", "topology", "seed", "version")}


def _is_summary(path: Path) -> bool:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"backend", "algorithm", "trace_sha256"} <= content.keys()


def _read_summary(folder: Path) -> dict[str, Any]:
    if not _is_summary(folder / SUMMARY):
        raise _damaged(folder / SUMMARY, "a run's summary (backend, algorithm, trace_sha256, ...)")
    content: dict[str, Any] = msgspec.json.decode((folder / SUMMARY).read_bytes())
    return content


def _check_complete(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(Problem("run", f"no folder {folder}", "a run folder"))
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise UsageError([Problem(name, f"nothing in {folder}", "this file of a run folder") for name in missing])


def _damaged(path: Path, expected: str) -> UsageError:
    return UsageError(Problem(path.name, f"something else in {path}", expected))
