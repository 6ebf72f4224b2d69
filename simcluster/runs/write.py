"""Write the directory of a run: config, summary, metrics, trace, final weights.

Every file is written completely under another name and then renamed. So a full disk leaves no
partial file under a final name, and an earlier run stays intact. This module does not import
pandas: the import takes longer than most commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import yaml

from simcluster.errors import NodeFailed, RunError, WorldFailed
from simcluster.paths import inside
from simcluster.paths.inside import PARTIAL
from simcluster.process.interrupts import CtrlC
from simcluster.runs import arrow_columns
from simcluster.runs import folder as layout
from simcluster.runs.destination import check_folder
from simcluster.runs.record import Metric, RunRecord
from simcluster.runs.summary import CONSENSUS, summarize
from simcluster.runs.trace import description, events

if TYPE_CHECKING:
    import pyarrow as pa

    from simcluster.runs.samples import SampleUses
    from simcluster.topology import Topology


class FolderError(RunError):
    """A file of the run directory *folder* could not be written."""

    def __init__(self, folder: Path, name: str, error: OSError) -> None:
        rest = "; the rest of the run is there" if name == layout.REPORT else ""
        super().__init__(f"cannot write {name or 'anything'} into the run folder: {error.strerror or error}{rest}")
        self.folder = str(folder)


def write_run(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    topology: Topology,
    record: RunRecord,
    version: str,
    *,
    samples: SampleUses | None = None,
) -> Path:
    """Write *record* to *folder*, and return the path.

    An earlier run in *folder* is replaced. Checkpoints of steps stay, since another module manages
    them. *samples* is the use of the samples, None if it is not known. Raise UsageError if
    *folder* holds anything but a run, FolderError if a file cannot be written.
    """
    folder = Path(folder)
    check_folder(folder)
    summary = summarize(config, topology, record, version)
    about = {key: summary[key] for key in ("name", "backend", "algorithm", "topology", "seed", "version")}
    resolved = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=110)
    writers: dict[str, Callable[[BinaryIO], object]] = {
        layout.CONFIG: lambda file: file.write(resolved.encode()),
        layout.METRICS: partial(_write_metrics, record),
        layout.TRACE: partial(_write_trace, record, about),
    }
    if samples is not None:
        writers[layout.SAMPLES] = partial(_write_samples, samples)
    if record.nodes and (weights := record.standing.weights):
        writers[layout.FINAL_PATH] = lambda file: file.writelines(weights.pieces())
    if any(node.order for node in record.nodes):
        orders = {node.name: node.order for node in record.nodes}
        writers[layout.ORDER] = lambda file: file.write(msgspec.msgpack.encode(orders))
    # msgspec writes floats that read back to the same bits, and null for NaN and infinities, which JSON lacks.
    writers[layout.SUMMARY] = lambda file: file.write(
        msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
    )
    if isinstance(record.error, (NodeFailed, WorldFailed)):
        details = record.error.details
        writers[layout.TRACEBACK] = lambda file: file.write(details.encode())
    replace_files(folder, writers)
    # Remove optional files of an earlier run: they would look like this run's.
    optional = {layout.TRACEBACK, layout.SAMPLES, layout.FINAL_PATH, layout.ORDER}
    for name in (layout.REPORT, *(optional - writers.keys())):
        inside.remove(folder, *name.split("/"))
    if config["backend"] == "sim" and config["algorithm"].get("name") != "script":
        _remove_logs(folder)
    return folder


def replace_files(folder: Path, writers: Mapping[str, Callable[[BinaryIO], object]]) -> None:
    """Let each writer write its file under another name, then rename all files.

    If a file cannot be written, raise FolderError and rename none. The summary is removed before
    the first rename and renamed last: if the process ends in between, the directory does not read
    as a run.
    """
    name = ""
    try:
        with inside.opened(folder, make=True) as place:
            try:
                for name, write in writers.items():
                    inside.stage(place, Path(name).name, write)
                with inside.opened(folder, layout.CHECKPOINTS, make=True) as inner, CtrlC(lambda: None):
                    if layout.SUMMARY in writers:
                        inside.remove_from(place, layout.SUMMARY)
                    for name in writers:
                        inside.put(
                            place, Path(name).name, inner if name.startswith(f"{layout.CHECKPOINTS}/") else place
                        )
            except (OSError, KeyboardInterrupt):
                for staged in writers:
                    inside.remove_from(place, PARTIAL + Path(staged).name)
                raise
    except OSError as error:
        raise FolderError(folder, name, error) from error


def _remove_logs(folder: Path) -> None:
    """Remove the logs of an earlier run on real nodes, and their directory if it is empty."""
    with suppress(OSError), inside.opened(folder, layout.LOGS) as logs:
        for name in os.listdir(logs):
            if name.endswith(layout.LOG_SUFFIX):
                inside.remove_from(logs, name)
    with suppress(OSError), inside.opened(folder) as outer:
        os.rmdir(layout.LOGS, dir_fd=outer)


def _write_trace(record: RunRecord, other: Mapping[str, Any], file: BinaryIO) -> None:
    """Write the trace with one event per line, so that diff can compare two traces."""
    file.write(b'{"traceEvents":[\n')
    for index, event in enumerate(events(record)):
        file.write((b",\n" if index else b"") + msgspec.json.encode(event))
    file.write(b"\n]," + msgspec.json.encode(description(record, other))[1:] + b"\n")


def consensus_metrics(record: RunRecord) -> list[tuple[int, Metric]]:
    """Return (rank, metric) with the consensus distance of each node, for each step, in order.

    Only nodes that ended well count, and only steps for which all of them have a copy. If a step
    was made twice, the later copy counts. The mean is computed in rank order, in double precision.
    Nodes with copies of different sizes hold parts of a model, which have no distance. These
    metrics are not part of the trace digest: observing weights does not affect the run.
    """
    nodes = [node for node in record.nodes if node.ended_well] or record.nodes
    if not all(node.copies for node in nodes):
        return []
    by_step = [{copy.step: copy for copy in node.copies} for node in nodes]
    found = []
    for step in sorted(set.intersection(*map(set, by_step))) if by_step else []:
        copies = [copies[step] for copies in by_step]
        if len({copy.size_bytes for copy in copies}) > 1:
            continue
        mean = sum(copy.vector for copy in copies) / len(copies)
        for node, copy in zip(nodes, copies, strict=True):
            distance = float(np.square(copy.vector - mean).sum())
            found.append((node.rank, Metric(copy.time_s + record.began_s, step, node.name, CONSENSUS, distance)))
    return found


def _write_metrics(record: RunRecord, file: BinaryIO) -> None:
    looked = consensus_metrics(record)
    rows = sorted(
        (
            (metric.time_s, node.rank, index, metric)
            for node in record.nodes
            for index, metric in enumerate([*node.metrics, *(found for rank, found in looked if rank == node.rank)])
        ),
        key=lambda row: row[:3],
    )
    time_s, step, node, name, value = zip(*(row[3] for row in rows), strict=True) if rows else [()] * 5
    columns = {
        "time_s": arrow_columns.floats(time_s),
        "step": arrow_columns.whole(step),
        "node": arrow_columns.texts(node),
        "name": arrow_columns.texts(name),
        "value": arrow_columns.floats(value),
    }
    _write_table(columns, file)


def _write_samples(samples: SampleUses, file: BinaryIO) -> None:
    given = samples.columns
    columns = {
        "epoch": arrow_columns.whole(given["epoch"], 32),
        "sample": arrow_columns.whole(given["sample"]),
        "node": arrow_columns.categories(given["node"]),
        "used": arrow_columns.whole(given["used"], 32),
        "lost": arrow_columns.whole(given["lost"], 32),
    }
    _write_table(columns, file)


def _write_table(columns: dict[str, pa.Array], file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays(list(columns.values()), names=list(columns)), file)
