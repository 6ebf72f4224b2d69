"""Read the directory of a run.

Functions import pandas and torch themselves: each import takes longer than most commands run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import Problem, UsageError
from simcluster.paths.inside import read
from simcluster.paths.last_run import last_run
from simcluster.runs.calls import SCRIPT
from simcluster.runs.record import Span
from simcluster.runs.rows import MetricRows, arrow_table, read_rows
from simcluster.runs.schema import summary_of, trace_of
from simcluster.runs.spans import Rest
from simcluster.runs.trace import CALL_KINDS, rests_of, spans_of

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from simcluster.checkpoints.store import Checkpoint
    from simcluster.topology import Topology

CONFIG = "config.yaml"
SUMMARY = "summary.json"
METRICS = "metrics.parquet"
TRACE = "trace.json"
REPORT = "report.html"
CHECKPOINTS = "checkpoints"
LOGS = "logs"
LOG_SUFFIX = ".log"
"""The suffix of the files in the directory of logs that hold the nodes' output."""
TRACEBACK = "traceback.txt"
"""The traceback of the node that failed, if one did."""
FINAL = "final.safetensors"
"""The file in the directory of checkpoints with the final weights of rank 0."""
FINAL_PATH = f"{CHECKPOINTS}/{FINAL}"
SAMPLES = "samples.parquet"
"""The file with the use of each drawn sample; absent if nothing was computed."""

LIVE = "live.json"
"""The file with the state of a run in progress, for observers.

The file is removed at the end, and is not part of the result.
"""

ORDER = "order.msgpack"
"""The file with the order of events of each node, packed by simcluster.runs.event_order.

Only real runs have one.
"""

NEEDED = (CONFIG, METRICS, TRACE, SUMMARY)
"""The files that every complete run has."""
SOURCE = "source"
"""The directory with the user's functions that had no file; see simcluster.documents.captured."""
FILES = "files"
"""The directory with the files that a script has written to relative paths."""
SHARDS = "shards"
# Limits on the files that are read: a directory may come from elsewhere.
SUMMARY_BYTES = 128 << 20
TRACE_BYTES = 2 << 30
WEIGHTS_BYTES = 64 << 30
# Name of a column -> the allowed kinds of its numpy dtype.
METRIC_COLUMNS = {"time_s": "f", "step": "iu", "node": "OTU", "name": "OTU", "value": "f"}
SAMPLE_COLUMNS = {"epoch": "iu", "sample": "iu", "node": "OTU", "used": "iu", "lost": "iu"}


class RunFolder:
    """A run, read from its directory.

    The summary is read at once, everything else at its first use.

    A later read raises UsageError if another run has been written to the directory in between.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raise UsageError, naming every missing file, if *folder* is not a complete run directory."""
        self.folder = last_run(folder)
        if not self.folder.is_dir():
            is_file = os.path.isfile(self.folder)
            found = f"the file {self.folder}" if is_file else f"no folder {self.folder}"
            unpacked = ": unpack the file first" if self.folder.suffix in (".zip", ".gz", ".tar") else ""
            raise UsageError("run", found, f"a run folder{unpacked}")
        missing = [name for name in NEEDED if not (self.folder / name).is_file()]
        if missing and (self.folder / "sweep.yaml").is_file():
            raise UsageError("run", f"the sweep {self.folder}", "the folder of a run, like one in its points")
        if missing:
            expected = "this file of a run folder"
            raise UsageError([Problem(name, f"nothing in {self.folder}", expected) for name in missing])
        self.summary: dict[str, Any] = read_summary(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved experiment, with all defaults, which is enough to repeat the run."""
        content = read_config(self._same())
        if not isinstance(content, dict):
            raise _damaged(self.folder / CONFIG, "a mapping")
        return content

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per number recorded: time_s, step, node, name, value; by time, then rank."""
        return read_table(self._same(), METRICS, METRIC_COLUMNS)

    @cached_property
    def rows(self) -> MetricRows:
        """The rows of `metrics` as numpy columns, without importing pandas."""
        import pyarrow as pa

        folder = self._same()
        try:
            return read_rows(folder, METRICS, METRIC_COLUMNS)
        except (OSError, ValueError, TypeError, KeyError, NotImplementedError, pa.ArrowException) as error:
            raise _damaged(folder / METRICS, f"a Parquet table ({error})") from error

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per sample and epoch: epoch, sample, node, used and lost.

        *used* counts how many times the sample's gradient entered the weights, *lost* how many
        times it was computed and did not. Raise UsageError for a run that computed nothing.
        """
        return read_table(self._same(), SAMPLES, SAMPLE_COLUMNS)

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The reasons to doubt the result, each with its kind and text; see
        simcluster.runs.doubts.
        """
        found: list[dict[str, Any]] = self.summary.get("warnings", [])
        return found

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints, the oldest first; `simcluster.resume` resumes from one."""
        from simcluster.checkpoints.store import checkpoints

        return checkpoints(self._same())

    @cached_property
    def trace(self) -> dict[str, Any]:
        """The Chrome trace: traceEvents and otherData."""
        folder = self._same()
        try:
            return trace_of(read(folder, TRACE, most_bytes=TRACE_BYTES), size_of(self.summary))
        except (OSError, ValueError) as error:
            raise _damaged(self.folder / TRACE, f"a run's trace ({error})") from error

    @cached_property
    def spans(self) -> list[tuple[int, Span]]:
        """(rank, span) for all activity of the nodes, sorted by rank, kind and start.

        Times are rounded to nanoseconds. If a run has too many spans, only the first ones of each
        node are included, and `rests` sums up the others.
        """
        return spans_of(self.trace)

    @cached_property
    def calls(self) -> list[tuple[int, Span]]:
        """(rank, span) for each call, wait and step of a script; empty for other runs."""
        return spans_of(self.trace, CALL_KINDS)

    @cached_property
    def rests(self) -> dict[int, Rest]:
        """Rank -> sum of the spans of this rank that are not in `spans`; empty for most runs."""
        return rests_of(self.trace)

    def weights(self) -> dict[str, Tensor]:
        """Return the final weights of rank 0, by parameter name in the model's order.

        The file has frozen parameters and buffers, too. The weights hash to
        `summary["weights_sha256"]`. Raise UsageError if there are none: the run failed before rank
        0 handed them in, or was timing-only.
        """
        path = self._same() / CHECKPOINTS / FINAL
        if not path.exists():
            error = self.summary.get("error")
            end = f"failed: {error['message'].splitlines()[0]}" if error else "has none in its checkpoints"
            if self.config.get("numerics") == "none":
                end = "was timed only (numerics: none)"
            expected = f"the weights of a run that ended, and this one {end}"
            raise UsageError(str(path), "no such file", expected)
        try:
            return read_safetensors(read(self.folder, CHECKPOINTS, FINAL, most_bytes=WEIGHTS_BYTES))
        except (OSError, ValueError) as error:
            raise _damaged(path, f"weights in the format safetensors ({error})") from error

    def _same(self) -> Path:
        """Return the directory.

        Raise UsageError if it now holds a run other than the one that was read.
        """
        there = read_summary(self.folder)
        if any(there[key] != self.summary[key] for key in ("trace_sha256", "weights_sha256")):
            expected = "the run that was read; another one has overwritten it: give each a directory, run(..., out=...)"
            raise UsageError("run", f"{self.folder} with another run", expected)
        return self.folder

    @property
    def label(self) -> str:
        """A short name that distinguishes runs of one experiment."""
        return "{name}, {algorithm} on {topology}, {backend}, seed {seed}".format(**self.summary)

    def __repr__(self) -> str:
        doubtful = "".join(f"; warning: {row['text']}" for row in self.warnings)
        return f"Run({str(self.folder)!r}: {self.label}, {self.summary['status']}{doubtful})"


def size_of(summary: Mapping[str, Any]) -> int:
    """Return the number of nodes of a run, including those on which nothing happened."""
    return len(summary["nodes"]) + int(summary.get("resting", {}).get("nodes", 0))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of the run in *folder*.

    Raise UsageError, naming the wrong field, if the file is damaged.
    """
    try:
        return summary_of(read(folder, SUMMARY, most_bytes=SUMMARY_BYTES))
    except (OSError, ValueError) as error:
        expected = f"a run's summary (backend, algorithm, trace_sha256, ...): {error}"
        raise _damaged(folder / SUMMARY, expected) from error


def read_config(folder: Path) -> Any:
    """Return the resolved experiment in *folder*. Raise UsageError if the file is damaged."""
    from simcluster.documents.yaml import MAX_BYTES, loads

    try:
        text = read(folder, CONFIG, most_bytes=MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        raise _damaged(folder / CONFIG, f"a file that can be read ({error})") from error
    return loads(text, str(folder / CONFIG)).data


def topology_of(run: RunFolder) -> Topology:
    """Return the topology of *run*'s resolved experiment.

    Raise UsageError, naming the file, if the topology is invalid.
    """
    from simcluster.topology import load

    path = run.folder / CONFIG
    config = run.config
    try:
        return load(config["topology"])
    except (KeyError, TypeError) as error:
        raise _damaged(path, "the topology of a run") from error
    except UsageError as error:
        raise UsageError([replace(one, key=f"topology, {one.key}", file=str(path)) for one in error.problems]) from None


def read_table(folder: Path, name: str, columns: Mapping[str, str], what: str = "a Parquet table") -> pd.DataFrame:
    """Return the table *name* in *folder*.

    Raise UsageError, naming *what* as expected, if the file cannot be read, or if *columns* are
    missing or have other dtypes.
    """
    import pyarrow as pa

    try:
        table, schema = arrow_table(folder, name, columns, others=True)
        for number, field in enumerate(table.schema):
            own = schema.field(field.name)
            if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(own.type):
                table = table.set_column(number, own, table.column(number).cast(own.type))
        found: pd.DataFrame = table.to_pandas()
        for column, kinds in columns.items():
            if column not in found:
                raise ValueError(f"no column {column!r}")
            if getattr(found[column].dtype, "kind", "O") not in kinds:
                raise ValueError(f"{found[column].dtype} in column {column!r}")
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise _damaged(folder / name, f"{what} ({error})") from error
    return found


def judged(metrics: pd.DataFrame, summary: Mapping[str, Any], name: str) -> pd.DataFrame:
    """Return the rows of *metrics* with the held-out *name*, "loss" or "accuracy".

    For the run of a script, return those of the lowest rank that logged *name*.
    """
    if summary.get("algorithm") != SCRIPT:
        return metrics[metrics["name"] == f"eval_{name}"]
    rows = metrics[metrics["name"] == name]
    ranks = rows["node"].map({node: numbers["rank"] for node, numbers in summary["nodes"].items()})
    found: pd.DataFrame = rows[ranks == ranks.min()]
    return found


def read_safetensors(content: bytes) -> dict[str, Tensor]:
    """Return name -> tensor, in the model's order.

    Raise ValueError if *content* is not a safetensors file.
    """
    import safetensors.torch

    from simcluster.workloads.weights_file import WEIGHTS_ORDER

    try:
        tensors = safetensors.torch.load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        names = json.loads(header.get("__metadata__", {}).get(WEIGHTS_ORDER, "null")) or sorted(tensors)
        return {name: tensors[name] for name in names}
    except (safetensors.SafetensorError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None


def _damaged(path: Path, expected: str) -> UsageError:
    return UsageError(path.name, f"something else in {path}", expected)
