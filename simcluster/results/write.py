"""Writes the run folder: config, summary, metrics, trace, checkpoints, report.

This file knows the formats of the files. It must not know a backend, and leaves what is drawn to report. Everything
is first written whole under a name of its own beside its place, and only then renamed, so a full disk leaves no half
file under a final name and an earlier run as it was. pandas is imported where it is used: that takes longer than most
commands run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from simcluster.errors import NodeFailed, RunError
from simcluster.results.copies import consensus_metrics
from simcluster.results.folder import (
    CHECKPOINTS,
    CONFIG,
    FINAL_PATH,
    LOGS,
    METRICS,
    ORDER,
    PARTIAL,
    REPORT,
    SAMPLES,
    SUMMARY,
    TRACE,
    TRACEBACK,
    Run,
    check_folder,
)
from simcluster.results.record import RunRecord
from simcluster.results.summary import summarize
from simcluster.results.trace import description, events

if TYPE_CHECKING:
    from simcluster.results.samples import Samples
    from simcluster.topology import Topology


class FolderError(RunError):
    """A file of the run folder could not be written; *folder* is its path."""

    def __init__(self, folder: Path, name: str, error: OSError) -> None:
        rest = "; the rest of the run is there" if name == REPORT else ""
        super().__init__(f"cannot write {name or 'anything'} into the run folder: {error.strerror or error}{rest}")
        self.folder = str(folder)


def write_run(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    topology: Topology,
    record: RunRecord,
    version: str,
    *,
    report: bool = True,
    samples: Samples | None = None,
) -> Run:
    """Writes everything *record* says to *folder* and returns it as a Run.

    An earlier run in *folder* is replaced; files that are not ours stay, and so do checkpoints of steps, which are
    another's affair. A report takes 5 MB: a sweep may do without. *samples* are what became of them, if known. Raises
    UsageError if *folder* holds something else, FolderError if it cannot be written.
    """
    folder = Path(folder)
    check_folder(folder)
    summary = summarize(config, topology, record, version)
    writers: dict[str, Callable[[Path], object]] = {
        CONFIG: partial(_write_yaml, dict(config)),
        METRICS: partial(_write_metrics, record),
        TRACE: partial(_write_trace, record, _description(summary)),
        **({SAMPLES: partial(_write_samples, samples)} if samples is not None else {}),
        **({FINAL_PATH: partial(_write_weights, record)} if record.nodes and record.standing.weights else {}),
        **({ORDER: partial(_write_order, record)} if any(node.order for node in record.nodes) else {}),
        SUMMARY: partial(_write_json, summary),
    }
    if isinstance(record.error, NodeFailed):
        details = record.error.details
        writers[TRACEBACK] = lambda path: path.write_text(details, encoding="utf-8")
    _replace(folder, writers)
    (folder / CHECKPOINTS).mkdir(exist_ok=True)
    # What an earlier run has left must not stay beside the numbers of this one, even if the new report fails.
    stale = [REPORT, *([LOGS] if config["backend"] == "sim" else [])]
    for name in [*stale, *(name for name in (TRACEBACK, SAMPLES, FINAL_PATH, ORDER) if name not in writers)]:
        _remove(folder / name)
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
    staged = {name: folder / f"{PARTIAL}{Path(name).name}" for name in writers}
    name = ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            _remove(staged[name])
            write(staged[name])
        for name, path in staged.items():
            (folder / name).parent.mkdir(exist_ok=True)
            path.replace(folder / name)
    except OSError as error:
        for path in staged.values():
            _remove(path)
        raise FolderError(folder, name, error) from error


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


def _write_trace(record: RunRecord, other: Mapping[str, Any], path: Path) -> None:
    """One event a line, so that two traces can be compared with the usual tools."""
    with path.open("wb") as file:
        file.write(b'{"traceEvents":[\n')
        for index, event in enumerate(events(record)):
            file.write((b",\n" if index else b"") + msgspec.json.encode(event))
        file.write(b"\n]," + msgspec.json.encode(description(record, other))[1:] + b"\n")


def _write_metrics(record: RunRecord, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    looked = consensus_metrics(record)
    rows = sorted(
        (
            (metric.time_s, node.rank, index, metric)
            for node in record.nodes
            for index, metric in enumerate([*node.metrics, *(found for rank, found in looked if rank == node.rank)])
        ),
        key=lambda row: row[:3],
    )
    columns = list(zip(*(row[3] for row in rows), strict=True)) or [()] * 5
    kinds = {"time_s": pa.float64(), "step": pa.int64(), "node": pa.large_string(), "name": pa.large_string()}
    kinds["value"] = pa.float64()
    pq.write_table(
        pa.table({name: pa.array(column, kind) for (name, kind), column in zip(kinds.items(), columns, strict=True)}),
        path,
    )


def _write_weights(record: RunRecord, path: Path) -> None:
    assert record.standing.weights is not None
    path.write_bytes(record.standing.weights)


def _write_order(record: RunRecord, path: Path) -> None:
    path.write_bytes(msgspec.msgpack.encode({node.name: node.order for node in record.nodes}))


def _write_samples(samples: Samples, path: Path) -> None:
    import pandas as pd

    kinds = {"epoch": "int32", "sample": "int64", "node": "category", "used": "int32", "lost": "int32"}
    pd.DataFrame(dict(samples.columns)).astype(kinds).to_parquet(path, index=False)


def _description(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("name", "backend", "algorithm", "topology", "seed", "version")}
