"""Run the missing points of a sweep, and write its table.

Each point is kept under a digest of everything that its result depends on, so a finished run is
never repeated: an interrupted sweep resumes, and a larger sweep reuses the runs of a smaller one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simcluster.backend import backend_named
from simcluster.documents.captured.source import write_sources
from simcluster.documents.user_code import refuse_while_loading
from simcluster.errors import Problem, UsageError, in_short, raise_all
from simcluster.experiment.interval import REPLICAS
from simcluster.experiment.read.experiment import own_code
from simcluster.experiment.read.given import (
    AnyAlgorithm,
    AnyExperiment,
    AnyScript,
    AnyTopology,
    AnyWorkload,
    block_of,
    experiment_value,
    label_of,
    script_keys,
    value_at,
)
from simcluster.experiment.read.script import is_script
from simcluster.lab.sweeps.axes import Axis, read_axes
from simcluster.lab.sweeps.engines import Engine, checked_jobs, engine, start_fork_server
from simcluster.lab.sweeps.points import DIED, ERROR, Point, is_complete, note, read_points
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import opened, read, write_whole
from simcluster.process.kernels import heed_portable
from simcluster.process.starting import way_to_start
from simcluster.results import Sweep
from simcluster.runs.destination import check_links, check_writable
from simcluster.runs.folder import METRIC_COLUMNS, METRICS, SOURCE, SUMMARY, judged, read_summary, read_table
from simcluster.runs.sweep.sweep_folder import LOGS, POINTS, SWEEP, TABLE_CSV, TABLE_PARQUET
from simcluster.runs.sweep.swept_columns import columns_of
from simcluster.watching.notebook import notebook_progress

if TYPE_CHECKING:
    import pandas as pd

NOTE_BYTES = 10 << 20

TARGET_COLUMN = "time_to_target_s"

NUMBERS = ("elapsed_s", "steps", "loss", "accuracy", "messages_sent", "bytes_sent", "joules", "price_usd")
"""Columns of the table that are copied from summary.json."""

FLOATS = ("elapsed_s", "loss", "accuracy", "joules", "price_usd", "staleness_mean", "staleness_max", TARGET_COLUMN)
"""Columns that are always of type float, since some points, or all, may have no number."""

Progress = Callable[[int, int, int], None]
"""A callback for (points done, all points, points that had run before this sweep)."""


class PlannedSweep(Sweep):
    """A sweep with all its *points*, known before they run; its table may not be written yet."""

    def __init__(self, folder: Path, points: Sequence[Point], target: Mapping[str, float] | None = None) -> None:
        super().__init__(folder, points[0].document["name"], list(points[0].values), len(points))
        self.points = list(points)
        self.target = target

    @property
    def folders(self) -> list[Path]:
        return [self.folder / POINTS / point.digest for point in self.points]

    @cached_property
    def table(self) -> pd.DataFrame:
        return table(self.points, self.folders, self.target)

    @property
    def configs(self) -> list[Mapping[str, Any] | None]:
        ran = [(folder / SUMMARY).is_file() for folder in self.folders]
        return [point.document if has_run else None for point, has_run in zip(self.points, ran, strict=True)]


@in_short
def sweep(
    experiment: AnyExperiment | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    pairs: Sequence[str] = (),
    seeds: int = 1,
    seed: int | None = None,
    backend: str | None = None,
    topology: AnyTopology | None = None,
    algorithm: AnyAlgorithm | None = None,
    workload: AnyWorkload | None = None,
    script: AnyScript | None = None,
    args: Sequence[object] = (),
    compute: str | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    engine_name: str = "local",
    target: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
    progress: Progress | None = None,
    **keys: Any,
) -> PlannedSweep:
    """Run *experiment* at every combination of *values*.

        sweep("quickstart", {"algorithm.pull_interval": [1, 4]}, overrides={"stop.steps": 50})
        sweep("quickstart", {"algorithm": ["edp", my_algorithm]}, seeds=3)

    - *values*: dotted key -> list of values. *overrides* and *keys*: single values for all runs, as
      for `run`.
    - *sets*, *pairs*: strings as on the command line, such as "algorithm.staleness=log(1,64,7)".
    - *seeds*: number of runs per combination, with seeds from *seed* on. *jobs*: limit on processes
      at once; one per core if None. *engine_name*: local, dask, dask=ADDRESS or slurm.
    - *out*: a folder, which keeps every run; one below `runs/` if None.
    - *target*: a goal such as {"accuracy": 0.9}; the table then has the time to reach it.
    - *report*: whether to write the pages. *progress*: a callback; None shows a bar in a notebook.
    - *backend*, *topology*, *algorithm*, *workload*, *script*, *args*, *compute*, *options*: as for `run`.

    Raise UsageError before anything is written. A run that fails is a row of the table.
    """
    refuse_while_loading()
    heed_portable(options or {})
    said, axes = read_axes(sets, pairs, seed or 0)
    axes = [*_given(values or {}), *axes]
    fixed = experiment_value({**script_keys(script, args), **said, **keys, **(overrides or {})})
    home = partial(home_of, "sweep", out)
    processes = _processes(jobs, engine_name)
    points = read_points(
        experiment_value({} if experiment is None else experiment), axes, fixed, seeds=seeds, seed=seed, home=home,
        backend=backend, topology=topology, compute=compute, algorithm=block_of("algorithm", algorithm),
        workload=block_of("workload", workload),
    )  # fmt: skip
    _check(points, target or {}, options or {})
    folder = home(points[0].document["name"])
    check_folder(folder, (folder / SWEEP).is_file(), "a sweep's folder", (POINTS,), (LOGS,), (SOURCE,))
    done = PlannedSweep(folder, points, target)
    with ExitStack() as stack:
        ended = all(is_complete(point) for point in done.folders)
        run_all = None if ended else stack.enter_context(engine(engine_name, processes, folder / LOGS))
        _write_head(folder, axes, fixed, points)
        write_sources(reference for point in points for reference in own_code(point.document))
        try:
            with notebook_progress(f"sweep of {points[0].document['name']}", progress, "runs") as shown:
                run_missing(done, run_all, dict(options or {}), shown)
        except KeyboardInterrupt as end:
            end.add_note(_keep(done, target, report=report))
            raise
    return _finished(done, report=report)


def _finished(done: PlannedSweep, *, report: bool) -> PlannedSweep:
    """Write the results of *done*.

    Raise UsageError if all points run scripts and none of them logged a metric of the target.
    """
    _write(done, report=report)
    target = done.target or {}
    folders = [folder for folder in done.folders if (folder / SUMMARY).is_file()]
    if not target or not folders or not all(is_script(point.document) for point in done.points):
        return done
    logged = {name for folder in folders for name in read_table(folder, METRICS, METRIC_COLUMNS)["name"].unique()}
    for name, value in target.items():
        if name not in logged:
            found = ", ".join(sorted(logged)) or "nothing"
            expected = f"a metric that the script logs with simcluster.log(step=..., {name}=...), and it logged {found}"
            raise UsageError("--target", f"{name}={value!r}", f"{expected}; the runs are in {done.folder}")
    return done


def home_of(kind: str, out: str | Path | None, name: str, *_: object) -> Path:
    """Return the folder *out*, or runs/NAME-KIND for the experiment *name* if *out* is None."""
    return given_path(out, "--out") if out is not None else Path("runs") / f"{name}-{kind}"


def _processes(jobs: int | None, engine_name: str) -> int:
    """Return the number of processes at once; start the fork server if the processes need it.

    The server imports its modules while this process reads the experiment.
    """
    processes = checked_jobs(jobs)
    if engine_name == "local" and processes > 1 and way_to_start() == "fork":
        start_fork_server()
    return processes


def _keep(done: PlannedSweep, target: Mapping[str, float] | None, *, report: bool) -> str:
    """After an interrupt, write the table and pages of the finished points; return a note."""
    kept = [point for point, place in zip(done.points, done.folders, strict=True) if is_complete(place)]
    if kept:
        _write(PlannedSweep(done.folder, kept, target), report=report)
    return f"{len(kept)} of {len(done.points)} points are kept in {done.folder}; the same command continues"


def _write(done: PlannedSweep, *, report: bool) -> None:
    """Write the table of *done* and, if *report*, its pages."""
    for name, write in ((TABLE_CSV, done.table.to_csv), (TABLE_PARQUET, done.table.to_parquet)):
        write_whole(done.folder, name, content=partial(write, index=False))
    if report:
        done.write_pages()


def run_missing(done: PlannedSweep, run_all: Engine | None, options: dict[str, Any], progress: Progress | None) -> None:
    """Run every point without a complete folder, with the engine *run_all*.

    *run_all* may be None if no point is missing.
    """
    wanted = {point.digest: point for point in done.points}
    folders = {digest: done.folder / POINTS / digest for digest in wanted}
    missing = [digest for digest in wanted if not is_complete(folders[digest])]
    before = count = len(wanted) - len(missing)
    if progress is not None:
        progress(count, len(wanted), before)
    if not missing:
        return
    assert run_all is not None, "a point is missing"
    calls = [(wanted[digest].document, str(folders[digest]), options) for digest in missing]
    with closing(run_all(calls)) as outcomes:
        for number, error in outcomes:
            folder = folders[missing[number]]
            if error is not None and not is_complete(folder):
                note(folder, DIED, error)
            count += 1
            if progress is not None:
                progress(count, len(wanted), before)


def _given(values: Mapping[str, Any]) -> list[Axis]:
    problems = [
        Problem(key, repr(found), "a list of values")
        for key, found in values.items()
        if isinstance(found, (str, bytes, Mapping)) or not hasattr(found, "__iter__") or not list(found)
    ]
    raise_all(problems)
    return [Axis((key,), tuple((value_at(key, value),) for value in found)) for key, found in values.items()]


def _check(points: Sequence[Point], target: Mapping[str, float], options: Mapping[str, Any]) -> None:
    """Raise UsageError if a backend of *points* lacks one of *options* or *target* is invalid."""
    for backend in dict.fromkeys(point.document["backend"] for point in points):
        own = {name: value for name, value in options.items() if (backend, name) != ("sim", REPLICAS)}
        backend_named(backend).check_options(own)
    any_name = all(is_script(point.document) for point in points)
    for name, value in target.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not (any_name or name in ("loss", "accuracy")):
            raise UsageError("--target", f"{name}={value!r}", "accuracy=NUMBER or loss=NUMBER")
        if not math.isfinite(value) or (name == "accuracy" and not 0 < value <= 1):
            limits = "a number above 0, at most 1" if name == "accuracy" else "a finite number"
            raise UsageError("--target", f"{name}={value!r}", limits)


def check_folder(folder: Path, is_ours: bool, whose: str, *inner: Sequence[str]) -> None:
    """Raise UsageError if *folder* cannot take the files of a sweep.

    *inner* are paths below it that must not be links. *is_ours* says whether an earlier sweep made
    the folder, and *whose* describes such a folder.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("--out", f"the file {folder}", "a folder, or a name that is free")
    check_links(folder, *inner)
    check_writable(folder, "--out")
    if folder.is_dir() and any(folder.iterdir()) and not is_ours:
        raise UsageError("--out", f"{folder} with other things in it", f"{whose}, an empty or a new one")


def _write_head(folder: Path, axes: Sequence[Axis], fixed: Mapping[str, Any], points: Sequence[Point]) -> None:
    """Write sweep.yaml, which has the axes, fixed values and seeds for readers of the table."""
    head = {
        "experiment": points[0].document["name"],
        "axes": [
            {key: [label_of(values[i]) for values in axis.values] for i, key in enumerate(axis.keys)} for axis in axes
        ],
        "fixed": {key: label_of(value) for key, value in fixed.items()},
        "seeds": sorted({point.seed for point in points}),
        "points": len(points),
    }
    with opened(folder, POINTS, make=True):
        pass
    write_whole(folder, SWEEP, content=yaml.safe_dump(json.loads(json.dumps(head)), sort_keys=False).encode())


def table(points: Sequence[Point], folders: Sequence[Path], target: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Return the results of *points*, one row each.

    The columns are point, seed, each swept key (see `columns_of`), status, numbers and hashes of
    the run, error, and run (the name of its folder). A *target* such as {"accuracy": 0.9} adds
    `time_to_target_s`, which is empty if the run missed the target.
    """
    import pandas as pd

    swept = dict(columns_of(key, [point.values[key] for point in points]) for key in points[0].values)
    measured = [_measured(folder, target) for folder in folders]
    head = {"point": [point.index for point in points], "seed": [point.seed for point in points]}
    frame = pd.DataFrame(head | swept | {name: [row[name] for row in measured] for name in measured[0]})
    return frame.astype({name: "float64" for name in FLOATS if name in frame})


def _measured(folder: Path, target: Mapping[str, float] | None) -> dict[str, Any]:
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else {}
    row: dict[str, Any] = {"status": summary.get("status", "failed")} | {name: summary.get(name) for name in NUMBERS}
    staleness = summary.get("staleness") or {}
    row |= {"staleness_mean": staleness.get("mean"), "staleness_max": staleness.get("max")}
    if target:
        row[TARGET_COLUMN] = _reached_s(folder, target, summary) if summary else None
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


def _reached_s(folder: Path, target: Mapping[str, float], summary: Mapping[str, Any]) -> float | None:
    """Return the time at which a run had reached all of *target*; None if it never did.

    A metric with "loss" in its name must fall to its target; others must rise.
    """
    metrics = read_table(folder, METRICS, METRIC_COLUMNS)
    reached: list[float] = []
    for name, wanted in target.items():
        rows = judged(metrics, summary, name)
        good = rows[rows["value"] <= wanted] if "loss" in name else rows[rows["value"] >= wanted]
        if good.empty:
            return None
        reached.append(float(good["time_s"].min()))
    return max(reached)
