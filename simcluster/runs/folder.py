"""A run's directory: config, summary, metrics, trace, weights.

pandas and torch are imported where they are used: each takes longer to import than most commands run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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

CONFIG, SUMMARY, METRICS = "config.yaml", "summary.json", "metrics.parquet"
TRACE, REPORT, CHECKPOINTS, LOGS = "trace.json", "report.html", "checkpoints", "logs"
LOG_SUFFIX: Final = ".log"
"""Suffix of the files of nodes' output in the logs."""
TRACEBACK: Final = "traceback.txt"
"""Traceback of the node that failed, if one did."""
FINAL: Final = "final.safetensors"
"""In the checkpoints: the weights of rank 0 at the end."""
FINAL_PATH: Final = f"{CHECKPOINTS}/{FINAL}"
SAMPLES: Final = "samples.parquet"
"""Use of every sample that was drawn; absent if nothing was computed."""

LIVE: Final = "live.json"
"""The state of a run in progress, for observers; removed at its end, no part of its result."""

ORDER: Final = "order.msgpack"
"""Order of events by node, packed by simcluster.lab.replays; of a real run only."""

NEEDED: Final = (CONFIG, METRICS, TRACE, SUMMARY)
SOURCE: Final = "source"
"""The user's functions that had no file: see simcluster.documents.captured."""
FILES: Final = "files"
"""The files that a script has written to relative paths."""
SHARDS: Final = "shards"
SUMMARY_BYTES: Final = 128 << 20
TRACE_BYTES: Final = 2 << 30
WEIGHTS_BYTES: Final = 64 << 30
"""The limits on files read from a run's directory."""
METRIC_COLUMNS: Final = {"time_s": "f", "step": "iu", "node": "OTU", "name": "OTU", "value": "f"}
SAMPLE_COLUMNS: Final = {"epoch": "iu", "sample": "iu", "node": "OTU", "used": "iu", "lost": "iu"}
"""Column -> its numpy kinds."""


class RunFolder:
    """A run read from its directory. The summary is read at once, everything else at its first use.

    That raises UsageError if another run was written to the directory in between.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raise UsageError, naming every missing file, if *folder* is not a complete run directory."""
        self.folder = last_run(folder)
        if not self.folder.is_dir():
            is_file = os.path.isfile(self.folder)
            found = f"the file {self.folder}" if is_file else f"no folder {self.folder}"
            unpacked = ": unpack the file first" if self.folder.suffix in (".zip", ".gz", ".tar") else ""
            raise UsageError(Problem("run", found, f"a run folder{unpacked}"))
        missing = [name for name in NEEDED if not (self.folder / name).is_file()]
        if missing and (self.folder / "sweep.yaml").is_file():
            raise UsageError(Problem("run", f"the sweep {self.folder}", "the folder of a run, like one in its points"))
        if missing:
            expected = "this file of a run folder"
            raise UsageError([Problem(name, f"nothing in {self.folder}", expected) for name in missing])
        self.summary: dict[str, Any] = read_summary(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved experiment: enough to repeat the run."""
        content = read_config(self._same())
        if not isinstance(content, dict):
            raise _damaged(self.folder / CONFIG, "a mapping")
        return content

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per number recorded by a node: time_s, step, node, name, value; by time, then rank."""
        return read_table(self._same(), METRICS, METRIC_COLUMNS)

    @cached_property
    def rows(self) -> MetricRows:
        """The same as `metrics`, without pandas."""
        import pyarrow as pa

        folder = self._same()
        try:
            return read_rows(folder, METRICS, METRIC_COLUMNS)
        except (OSError, ValueError, TypeError, KeyError, NotImplementedError, pa.ArrowException) as error:
            raise _damaged(folder / METRICS, f"a Parquet table ({error})") from error

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per sample and epoch: epoch, sample, node, used (times it is in the weights), lost (times it is not).

        Raises UsageError for a run that computed nothing.
        """
        return read_table(self._same(), SAMPLES, SAMPLE_COLUMNS)

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """The reasons to doubt the result, each with its kind and text: see simcluster.runs.doubts."""
        found: list[dict[str, Any]] = self.summary.get("warnings", [])
        return found

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The kept checkpoints of steps, by age: step, path, judged; `simcluster.resume` resumes from one."""
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
        """(rank, span) for all activity of the nodes, by rank, kind and start; times to the nanosecond.

        A run with very many spans has each node's first; `rests` sums up the others.
        """
        return spans_of(self.trace)

    @cached_property
    def calls(self) -> list[tuple[int, Span]]:
        """(rank, span) for each call of a script, wait for one, and step; empty for other runs."""
        return spans_of(self.trace, CALL_KINDS)

    @cached_property
    def rests(self) -> dict[int, Rest]:
        """By rank, the sum of the spans not in `spans`; empty for most runs."""
        return rests_of(self.trace)

    def weights(self) -> dict[str, Tensor]:
        """The final weights of rank 0, parameter by parameter in the model's order; they hash to
        `summary["weights_sha256"]`.

        Raises UsageError if there are none: the run failed before rank 0 handed them in, or was timed only.
        """
        path = self._same() / CHECKPOINTS / FINAL
        if not path.exists():
            error = self.summary.get("error")
            end = f"failed: {error['message'].splitlines()[0]}" if error else "has none in its checkpoints"
            if self.config.get("numerics") == "none":
                end = "was timed only (numerics: none)"
            expected = f"the weights of a run that ended, and this one {end}"
            raise UsageError(Problem(str(path), "no such file", expected))
        try:
            return read_safetensors(read(self.folder, CHECKPOINTS, FINAL, most_bytes=WEIGHTS_BYTES))
        except (OSError, ValueError) as error:
            raise _damaged(path, f"weights in the format safetensors ({error})") from error

    def _same(self) -> Path:
        """Return the directory if the run that was read is still in it. Raises UsageError."""
        there = read_summary(self.folder)
        if any(there[key] != self.summary[key] for key in ("trace_sha256", "weights_sha256")):
            expected = "the run that was read; another one has overwritten it: give each a directory, run(..., out=...)"
            raise UsageError(Problem("run", f"{self.folder} with another run", expected))
        return self.folder

    @property
    def label(self) -> str:
        """A short name that distinguishes runs of one experiment."""
        return "{name}, {algorithm} on {topology}, {backend}, seed {seed}".format(**self.summary)

    def __repr__(self) -> str:
        doubtful = "".join(f"; warning: {row['text']}" for row in self.warnings)
        return f"Run({str(self.folder)!r}: {self.label}, {self.summary['status']}{doubtful})"


def size_of(summary: Mapping[str, Any]) -> int:
    """Return the number of nodes of a run, those on which nothing has happened included."""
    return len(summary["nodes"]) + int(summary.get("resting", {}).get("nodes", 0))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of the run in *folder*. Raises UsageError, which names the wrong field."""
    try:
        return summary_of(read(folder, SUMMARY, most_bytes=SUMMARY_BYTES))
    except (OSError, ValueError) as error:
        expected = f"a run's summary (backend, algorithm, trace_sha256, ...): {error}"
        raise _damaged(folder / SUMMARY, expected) from error


def read_config(folder: Path) -> Any:
    """Return the resolved experiment in *folder*. Raises UsageError."""
    from simcluster.documents.yaml import MAX_BYTES, loads

    try:
        text = read(folder, CONFIG, most_bytes=MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        raise _damaged(folder / CONFIG, f"a file that can be read ({error})") from error
    return loads(text, str(folder / CONFIG)).data


def topology_of(run: RunFolder) -> Topology:
    """Return the topology of *run*'s resolved experiment. Raises UsageError, which names the file."""
    from simcluster.topology import load

    path, config = run.folder / CONFIG, run.config
    try:
        return load(config["topology"])
    except (KeyError, TypeError) as error:
        raise _damaged(path, "the topology of a run") from error
    except UsageError as error:
        raise UsageError([replace(one, key=f"topology, {one.key}", file=str(path)) for one in error.problems]) from None


def read_table(folder: Path, name: str, columns: Mapping[str, str], what: str = "a Parquet table") -> pd.DataFrame:
    """Return the table *name* in *folder*. Raises UsageError, which names *what*, unless it has *columns*."""
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
    """Return the rows of *metrics* that are *name* of the run of *summary*: those of its evaluation.

    Of a script's run, they are those of the lowest rank that logged *name*.
    """
    if summary.get("algorithm") != SCRIPT:
        return metrics[metrics["name"] == f"eval_{name}"]
    rows = metrics[metrics["name"] == name]
    ranks = rows["node"].map({node: numbers["rank"] for node, numbers in summary["nodes"].items()})
    found: pd.DataFrame = rows[ranks == ranks.min()]
    return found


def read_safetensors(content: bytes) -> dict[str, Tensor]:
    """Return name -> tensor in their original order. Raises ValueError if *content* is no such file."""
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
    return UsageError(Problem(path.name, f"something else in {path}", expected))
