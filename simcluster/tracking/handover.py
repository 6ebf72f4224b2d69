"""What a tracker is handed of a run: a name, parameters, numbers over step and time, a summary, files.

Everything is read from the folder, after the run, so no node ever waits for a tracker, and whatever is written comes
from one process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from simcluster.runs.flat_config import flat
from simcluster.runs.folder import CONFIG, REPORT, SUMMARY, RunFolder

if TYPE_CHECKING:
    import pandas as pd

MAX_NODES = 16
"""Of a metric that more nodes record, only the mean over them is handed over."""

MAX_PARAMS = 500
"""A configuration with more keys is handed over without the nodes and links of its topology."""

PARTS = ("topology.nodes.", "topology.links.")

Scalar: TypeAlias = str | int | float | bool


class Value(NamedTuple):
    """*name* was *value* at *step*, *time_s* after the run began."""

    name: str
    step: int
    time_s: float
    value: float


@dataclass(frozen=True)
class Handover:
    """One run. *id* is of its content and its *group*: what has run again to the same result is the same run.

    *experiment* is its name in the experiment file; *group* the sweep that it belongs to, or "", and *swept* those of
    its *params* that the sweep changed. *began_s* is when a tracker's clock starts, since the epoch: time 0 of the run.
    *values* are by step, then name.
    """

    id: str
    name: str
    experiment: str
    group: str
    params: dict[str, Scalar]
    swept: dict[str, Scalar]
    values: list[Value]
    summary: dict[str, float]
    tags: dict[str, str]
    failed: bool
    began_s: float
    files: list[Path]

    @property
    def place(self) -> str:
        """What it is listed under: all of a sweep together, single runs by their experiment."""
        return self.group or self.experiment

    @property
    def last_step(self) -> int:
        return max((value.step for value in self.values), default=0)


def hand_over(run: RunFolder, group: str = "", swept: tuple[str, ...] = ()) -> Handover:
    """What a tracker is to know of *run*, of the sweep *group* that changed the keys *swept*."""
    summary = run.summary
    params = _params(run.config)
    content = [run.config, summary["trace_sha256"], summary["weights_sha256"], group]
    return Handover(
        id=hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16],
        name="{algorithm}-{topology}-{seed}".format(**summary),
        experiment=str(summary["name"]),
        group=group,
        params=params,
        swept={key: value for key, value in params.items() if any(_is_of(key, name) for name in swept)},
        values=_values(run.metrics),
        summary=_numbers(summary),
        tags=_tags(run),
        failed=summary["status"] != "done",
        began_s=(run.folder / SUMMARY).stat().st_mtime,
        files=[path for name in (CONFIG, SUMMARY, REPORT) if (path := run.folder / name).is_file()],
    )


def _params(config: Mapping[str, Any]) -> dict[str, Scalar]:
    found = {key: "none" if value is None else value for key, value in flat(config).items()}
    if len(found) > MAX_PARAMS:
        found = {key: value for key, value in found.items() if not key.startswith(PARTS)}
    return found


def _is_of(key: str, swept: str) -> bool:
    """Whether *key* is *swept*, or inside it: of a topology that was swept whole its name says enough."""
    return key == swept or (key.startswith(f"{swept}.") and not key.startswith(PARTS))


def _values(metrics: pd.DataFrame) -> list[Value]:
    """One value of each name a step: a node's own as NAME/NODE, and as NAME the mean over all that recorded it."""
    recorders = metrics.groupby("name", sort=False)["node"].nunique()
    own = metrics[metrics["name"].map(recorders).between(2, MAX_NODES)]
    own = own.assign(name=own["name"] + "/" + own["node"])
    found = [*_means(metrics), *_means(own)]
    # A tracker whose only axis is the step has the time as one more number.
    times = metrics.groupby("step")["time_s"].max()
    found += [Value("time_s", int(step), time_s, time_s) for step, time_s in times.items()]  # type: ignore[call-overload]
    return sorted(found, key=lambda value: (value.step, value.name))


def _means(metrics: pd.DataFrame) -> list[Value]:
    """By name and step: the mean value, NaN if one is, at the latest time."""
    known = metrics.assign(unknown=metrics["value"].isna())
    by = known.groupby(["name", "step"], sort=False)
    found = by.agg(time_s=("time_s", "max"), value=("value", "mean"), unknown=("unknown", "any"))
    return [
        Value(str(name), int(step), float(time_s), math.nan if unknown else float(value))
        for (name, step), time_s, value, unknown in zip(
            found.index, found["time_s"], found["value"], found["unknown"], strict=True
        )
    ]


def _numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """Every number of the summary of the run as a whole."""
    found = {key: value for key, value in flat(summary).items() if not key.startswith(("nodes.", "links.", "faults"))}
    return {
        key: float(value)
        for key, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and key != "seed"
    }


def _tags(run: RunFolder) -> dict[str, str]:
    """Words of the summary: what it ran, what it ran on, how it ended, and where it is."""
    words = ("backend", "algorithm", "topology", "numerics", "status", "weights_sha256", "trace_sha256", "version")
    found = {name: str(run.summary[name]) for name in words if run.summary.get(name) is not None}
    found |= {f"versions.{name}": str(version) for name, version in run.summary.get("versions", {}).items()}
    if "error" in run.summary:
        found["error"] = "{type}: {message}".format(**run.summary["error"])
    return found | {"folder": str(run.folder.absolute())}
