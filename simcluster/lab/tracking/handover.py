"""Describe a run in a form that all trackers accept: a name, parameters, numbers over steps, files.

Everything is read from the run's directory after the run, so no node waits for a tracker, and only
one process writes.
"""

from __future__ import annotations

import hashlib
import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from simcluster.runs.flat_config import flat
from simcluster.runs.folder import CONFIG, FINAL_PATH, REPORT, SUMMARY, RunFolder
from simcluster.runs.record import Metric

if TYPE_CHECKING:
    import pandas as pd

MAX_NODES = 16
"""Limit on the nodes of a metric: if more record it, trackers get only the mean."""

MAX_PARAMS = 500
"""Limit on the keys of a configuration: a larger one leaves out the topology's nodes and links."""

MOST_BYTES = 1 << 30
"""Limit on a file that a tracker gets, such as the final weights."""

PARTS = ("topology.nodes.", "topology.links.")

Scalar = str | int | float | bool


class TrackedValue(NamedTuple):
    """One point of a metric: *name* had *value* at *step*, *time_s* after the run began."""

    name: str
    step: int
    time_s: float
    value: float


@dataclass(frozen=True)
class Handover:
    """One finished run, ready for a tracker.

    *id* depends on the run's content and *group*: a repetition with the same result has the same
    id. *experiment* is the name in the experiment file; *group* is the name of the sweep, or "" for
    a single run, and *swept* has the *params* that the sweep changed. *began_s* is the time at
    which the run begins for a tracker, in seconds since the epoch. *values* are sorted by step,
    then name.
    """

    id: str
    name: str
    experiment: str
    group: str
    params: dict[str, Scalar]
    swept: dict[str, Scalar]
    values: list[TrackedValue]
    summary: dict[str, float]
    tags: dict[str, str]
    failed: bool
    began_s: float
    files: list[Path]

    @property
    def place(self) -> str:
        """The heading under which a tracker lists the run: the sweep, else the experiment."""
        return self.group or self.experiment

    @property
    def last_step(self) -> int:
        return max((value.step for value in self.values), default=0)


class Heading(NamedTuple):
    """A run that has no result yet; *began_s* is its start in seconds since the epoch."""

    name: str
    experiment: str
    backend: str
    began_s: float


class RunDraft(Protocol):
    """An unfinished run in a tracker."""

    def add(self, values: Sequence[TrackedValue]) -> None: ...

    def close(self, *, keep: bool) -> None:
        """End the draft; remove it unless *keep*, which is for a run without a final result."""


def hand_over(run: RunFolder, group: str = "", swept: tuple[str, ...] = ()) -> Handover:
    """Return *run* as a Handover; the sweep *group* changed the keys *swept*."""
    summary = run.summary
    params = {key: "none" if value is None else value for key, value in flat(run.config).items()}
    if len(params) > MAX_PARAMS:
        params = {key: value for key, value in params.items() if not key.startswith(PARTS)}

    def is_swept(key: str) -> bool:
        # If whole topologies were swept, their names suffice: leave out their nodes and links.
        return key in swept or (key.startswith(tuple(f"{name}." for name in swept)) and not key.startswith(PARTS))

    content = [run.config, summary["trace_sha256"], summary["weights_sha256"], group]
    return Handover(
        id=hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16],
        name=name_of(summary["algorithm"], summary["topology"], run.config, summary["seed"]),
        experiment=str(summary["name"]),
        group=group,
        params=params,
        swept={key: value for key, value in params.items() if is_swept(key)},
        values=_values(run.metrics),
        summary={  # all numbers about the whole run, without those of nodes, links and faults
            key: float(value)
            for key, value in flat(summary).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            if key != "seed" and not key.startswith(("nodes.", "links.", "faults"))
        },
        tags=_tags(run),
        failed=summary["status"] != "done",
        began_s=(run.folder / SUMMARY).stat().st_mtime,
        files=[path for name in (CONFIG, SUMMARY, REPORT, FINAL_PATH) if _is_sent(path := run.folder / name)],
    )


def name_of(algorithm: str, topology: str, config: Mapping[str, Any], seed: int) -> str:
    """Return the name of a run, with the learning rate and the batch sizes that *config* has."""
    workload = config.get("workload") or {}
    rate, batch = workload.get("learning_rate"), workload.get("batch_size")
    sizes = batch.values() if isinstance(batch, Mapping) else [batch] if batch else []
    recipe = [f"lr{rate:g}"] if isinstance(rate, (int, float)) else []
    recipe += ["b" + "+".join(map(str, dict.fromkeys(sizes)))] if sizes else []
    return "-".join((algorithm, topology, *recipe, str(seed)))


def _is_sent(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= MOST_BYTES


def values_of(rows: Sequence[Metric]) -> list[TrackedValue]:
    """Return the values of *rows*, which must have all rows of each of their names and steps."""
    import pandas as pd

    return _values(pd.DataFrame(rows, columns=Metric._fields)) if rows else []


def _values(metrics: pd.DataFrame) -> list[TrackedValue]:
    """Return one value per name and step.

    NAME/NODE is the value of one node, and NAME is the mean over nodes.
    """
    recorders = metrics.groupby("name", sort=False)["node"].nunique()
    own = metrics[metrics["name"].map(recorders).between(2, MAX_NODES)]
    own = own.assign(name=own["name"] + "/" + own["node"])
    found = [*_means(metrics), *_means(own)]
    # The time is a metric as well: some trackers have the step as their only axis.
    times = metrics.groupby("step")["time_s"].max()
    found += [TrackedValue("time_s", int(step), time_s, time_s) for step, time_s in times.items()]  # type: ignore[call-overload]
    return sorted(found, key=lambda value: (value.step, value.name))


def _means(metrics: pd.DataFrame) -> list[TrackedValue]:
    """Return the mean over nodes for each name and step; NaN if any node's value is NaN.

    The time of a mean is the latest time of its values.
    """
    known = metrics.assign(unknown=metrics["value"].isna())
    by = known.groupby(["name", "step"], sort=False)
    found = by.agg(time_s=("time_s", "max"), value=("value", "mean"), unknown=("unknown", "any"))
    return [
        TrackedValue(str(name), int(step), time_s, math.nan if unknown else value)
        for (name, step), time_s, value, unknown in found.itertuples(name=None)
    ]


def _tags(run: RunFolder) -> dict[str, str]:
    """Return the summary's strings, such as the algorithm, the status and the directory."""
    words = ("backend", "algorithm", "topology", "numerics", "status", "weights_sha256", "trace_sha256", "version")
    found = {name: str(run.summary[name]) for name in words if run.summary.get(name) is not None}
    found |= {f"versions.{name}": str(version) for name, version in run.summary.get("versions", {}).items()}
    if "error" in run.summary:
        found["error"] = "{type}: {message}".format(**run.summary["error"])
    return found | {"folder": str(run.folder.absolute())}


def file_name(text: str) -> str:
    """Return *text* as a valid name for a file or directory."""
    return re.sub(r"[^\w.+-]", "_", text).lstrip(".")[:200] or "_"


def key_name(text: str) -> str:
    """Return *text* as a key that every tracker accepts: letters, digits, and `_-. :/` in between."""
    return posixpath.normpath(re.sub(r"[^\w./ :-]", "_", text)).lstrip("./")[:250] or "_"
