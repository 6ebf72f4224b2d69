"""Answer a what-if: run an experiment unchanged and with every change, as points of a sweep.

The runs are kept, as those of a sweep are: a repeated question, or another goal, reuses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simcluster.documents.captured.source import write_sources
from simcluster.documents.user_code import refuse_while_loading
from simcluster.errors import Problem, RunError, UsageError, in_short
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.given import (
    AnyAlgorithm,
    AnyExperiment,
    AnyScript,
    AnyTopology,
    AnyWorkload,
    block_of,
    experiment_value,
    script_keys,
)
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.sweeps.axes import read_axes
from simcluster.lab.sweeps.engines import Engine, checked_jobs, engine
from simcluster.lab.sweeps.points import Point, digest_of, is_complete
from simcluster.lab.sweeps.run import PlannedSweep, check_folder, home_of, run_missing
from simcluster.lab.what_if.critical_path import CriticalPath, critical_path
from simcluster.lab.what_if.effects import Effect, by_gain, effect, is_part
from simcluster.lab.what_if.free import free_changes
from simcluster.lab.what_if.goal import Goal, read_goal
from simcluster.lab.what_if.outcome import REPORT, TABLE, WhatIf
from simcluster.lab.what_if.perturb import Change, Parts, changes, purchases, read_parts
from simcluster.paths.inside import write_whole
from simcluster.runs.calls import SCRIPT
from simcluster.runs.folder import SOURCE, RunFolder, judged
from simcluster.runs.sweep.sweep_folder import ANSWER, LOGS, POINTS
from simcluster.topology import Device

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int, int], None]
"""A callback for (runs done, runs planned so far, runs reused from an earlier question)."""

MOST_SEEDS = 1000

MOST_UPGRADED, LEAST_OF_PATH = 4, 0.1
"""Limits on the parts for which purchases are tried.

They are the few that gain most, and those with at least this share of the critical path.
"""


@in_short
def whatif(
    experiment: AnyExperiment | None,
    goal: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    seeds: int = 3,
    seed: int | None = None,
    topology: AnyTopology | None = None,
    algorithm: AnyAlgorithm | None = None,
    workload: AnyWorkload | None = None,
    script: AnyScript | None = None,
    args: Sequence[object] = (),
    parts: str | Path | None = None,
    jobs: int | None = None,
    engine_name: str = "local",
    compute: str | None = None,
    out: str | Path | None = None,
    report: bool = True,
    progress: Progress | None = None,
    **keys: Any,
) -> WhatIf:
    """Find the part or setting of *experiment* that limits its *goal*, and what to buy.

        whatif("quickstart", "step-time", overrides={"stop.steps": 50})

    - *goal*: time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost.
    - *seeds*: number of runs per change, with seeds from *seed* on; the spread is the uncertainty.
    - *parts*: the file with the list of parts on sale.
    - *overrides*, *keys*, *topology*, *algorithm*, *workload*, *script*, *args* and *compute* are those
      of `run`; *sets*, *jobs*, *engine_name*, *out*, *report* and *progress* those of `sweep`.

    Raise UsageError before anything runs; RunError if the unchanged experiment misses the goal.
    """
    refuse_while_loading()
    wanted = read_goal(goal)
    for_sale = read_parts(parts)
    fixed, axes = read_axes(sets)
    _check_words(axes, seeds)
    given = experiment_value({**keys, **(overrides or {})})
    fixed = {**script_keys(script, args), **fixed, **given, "numerics": "real" if wanted.learns else "none"}

    home = partial(home_of, "whatif", out)
    source = experiment_value({} if experiment is None else experiment)
    read = partial(
        read_experiment, source, topology=topology, algorithm=block_of("algorithm", algorithm),
        workload=block_of("workload", workload), compute=compute, backend="sim", home=home,
    )  # fmt: skip
    try:
        plan = read(fixed, seed=seed)
    except UsageError:
        if wanted.learns:
            raise
        fixed["numerics"] = "real"  # The experiment may need values.
        plan = read(fixed, seed=seed)
    _check_goal(wanted, plan)
    folder = home(plan.name)
    ours = any(((folder / ANSWER).is_file(), (folder / POINTS).is_dir(), (folder / SOURCE).is_dir()))
    check_folder(folder, ours, "a folder of whatif", (POINTS,), (SOURCE,))
    with engine(engine_name, checked_jobs(jobs), folder / LOGS) as run_all:
        write_sources(plan.own_code)
        try:
            found = _Question(read, fixed, plan, wanted, seeds, folder, run_all, progress).answer(for_sale)
        except KeyboardInterrupt as end:
            kept = sum(map(is_complete, (folder / POINTS).glob("*")))
            end.add_note(f"{kept} runs are kept in {folder}; the same command continues")
            raise
    _write(found, report=report)
    return found


def _check_words(axes: Sequence[Any], seeds: int) -> None:
    """Raise UsageError for a setting with several values, or for an invalid number of seeds."""
    if axes:
        raise UsageError([Problem(f"--set {key}", "several values", "one value") for axis in axes for key in axis.keys])
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError("--seeds", str(seeds), f"1 to {MOST_SEEDS}")


@dataclass
class _Question:
    """A question that is being answered: the runs to make, and the results so far."""

    read: Callable[..., Experiment]
    fixed: dict[str, Any]
    plan: Experiment
    goal: Goal
    seeds: int
    folder: Path
    run_all: Engine
    progress: Progress | None
    done: int = 0
    exact: bool = False
    """Whether no run depends on the seed, so that one seed suffices."""
    replicas: Mapping[int, list[float]] = field(default_factory=dict)
    """Seed -> the times of the baseline run, one per resampled topology."""

    def answer(self, for_sale: Parts) -> WhatIf:
        """Try every change, then purchases for the parts that matter most; return the answer."""
        base, staleness, first = self._baseline()
        tried = [*changes(self.plan, staleness), *free_changes(self.plan)]
        effects = self._effects(tried, base)
        path = self._path(RunFolder(first), base)
        gaining = list(dict.fromkeys(e.change.part for e in by_gain(effects) if is_part(e)))
        worth = {*gaining[:MOST_UPGRADED], *(part.where for part in path.parts if part.share >= LEAST_OF_PATH)}
        bought = self._effects(purchases(self.plan.topology, for_sale, worth), base)
        doubts = [row["text"] for row in RunFolder(first).warnings]
        return WhatIf(
            self.folder, self.plan, self.goal, base, staleness, effects, bought, path, exact=self.exact, doubts=doubts
        )

    def _baseline(self) -> tuple[dict[int, float], float | None, Path]:
        """Run the unchanged experiment with every seed.

        Return (goal by seed, mean staleness, folder of the first seed's run).
        """
        as_it_is = [Change("setting", "", "as it is", {})]
        swept = self._run(self._points(as_it_is))
        if (_error(swept.table) or "").startswith("NeedsValues") and self.fixed["numerics"] == "none":
            self.fixed["numerics"] = "real"
            self.plan = self.read(self.fixed, seed=self.plan.seed)
            swept = self._run(self._points(as_it_is))
        if (error := _error(swept.table)) is not None:
            raise RunError(f"the unchanged experiment fails: {error}")
        values = self.goal.measured(swept.table, self.plan.planned_steps)
        base = {point.seed: value for point, value in zip(swept.points, values, strict=True) if value is not None}
        if None in values:
            reached = f"{values.count(None)} of {len(values)} seeds have no {self.goal.name} as the experiment is"
            near, helps = _nearest(self.goal, swept)
            raise RunError(f"{reached}{near}; what helps is {helps}")
        if not self.goal.learns and self.seeds > 1 and swept.table["trace_sha256"].nunique() == 1:
            self.exact = True
            self.seeds = 1
            base = {self.plan.seed: base[self.plan.seed]}
        # Only a whole run's time has an interval from resampled topologies, and both of these goals
        # follow from it.
        if self.goal.name in ("step-time", "run-time"):
            self.replicas = {swept.points[row].seed: times for row, times in _replicas(swept).items()}
        return base, _staleness(swept.table), swept.folders[0]

    def _effects(self, tried: Sequence[Change], base: Mapping[int, float]) -> list[Effect]:
        """Run the experiment with each change of *tried*; return the effects of valid changes."""
        points = self._points(tried)
        if not points:
            return []
        swept = self._run(points)
        values = self.goal.measured(swept.table, self.plan.planned_steps)
        changed = _replicas(swept) if self.replicas else {}
        found = []
        for change in tried:
            rows = [index for index, point in enumerate(swept.points) if point.values["change"] == change.label]
            if not rows:
                continue  # This change makes the experiment invalid: `_points` left it out.
            table = swept.table.iloc[rows]
            seeds = {row: swept.points[row].seed for row in rows}
            by_seed = {seed: values[row] for row, seed in seeds.items()}
            pairs = [
                pair
                for row, seed in seeds.items()
                for pair in zip(self.replicas.get(seed, ()), changed.get(row, ()), strict=False)
            ]
            found.append(effect(change, base, by_seed, _staleness(table), _error(table), pairs))
        return found

    def _points(self, tried: Sequence[Change]) -> list[Point]:
        """Return one point per seed for each change of *tried* that leaves the experiment valid."""
        points: list[Point] = []
        for change in tried:
            for number in range(self.seeds):
                try:
                    plan = self.read({**self.fixed, **change.overrides}, seed=self.plan.seed + number)
                except UsageError:
                    if not change.overrides:
                        raise
                    break
                values = {"change": change.label}
                points.append(Point(len(points), values, plan.seed, digest_of(plan.document), plan.document))
        return points

    def _run(self, points: list[Point]) -> PlannedSweep:
        """Run those of *points* that the folder lacks; return the sweep with all *points*."""

        def on_progress(done: int, total: int, before: int) -> None:
            if self.progress is not None:
                self.progress(self.done + done, self.done + total, before)

        swept = PlannedSweep(self.folder, points, self.goal.targets)
        run_missing(swept, self.run_all, {}, on_progress)
        self.done += len({point.digest for point in points})
        return swept

    def _path(self, run: RunFolder, base: Mapping[int, float]) -> CriticalPath:
        """Return the critical path of *run*, the first seed's.

        The path ends where the run reaches the target if the goal has one, else at the run's end.
        """
        if run.rests:
            # Each node's trace stops at a limit of spans: end the path where the shortest trace
            # stops.
            told_s = dict.fromkeys(run.rests, 0.0)
            for rank, span in run.spans:
                if rank in told_s:
                    told_s[rank] = max(told_s[rank], span.end_s)
            rank = min(told_s, key=lambda known: (told_s[known], known))
            if not self.goal.learns or told_s[rank] < base[self.plan.seed]:
                return critical_path(run.spans, self.plan.topology, end_s=told_s[rank], end_rank=rank, cut_short=True)
        if self.goal.learns:
            return critical_path(run.spans, self.plan.topology, end_s=base[self.plan.seed], end_rank=0)
        return critical_path(run.spans, self.plan.topology)


def _error(table: pd.DataFrame) -> str | None:
    errors = table["error"].dropna()
    return str(errors.iloc[0]) if len(errors) else None


def _staleness(table: pd.DataFrame) -> float | None:
    stale = table["staleness_mean"].dropna()
    return float(fmean(stale)) if len(stale) else None


def _replicas(swept: PlannedSweep) -> dict[int, list[float]]:
    """Return row -> the elapsed times of its run, one per resampled topology.

    Runs without resampled topologies are left out.
    """
    told = ((row, run.summary.get("elapsed_interval_s")) for row, run in enumerate(swept.runs) if run is not None)
    return {row: interval["replicas"] for row, interval in told if interval is not None}


def _check_goal(goal: Goal, plan: Experiment) -> None:
    """Raise UsageError if the devices or the stop rule of *plan* lack the numbers that the goal needs."""
    if goal.name == "step-time" and "patience" in plan.document["stop"]:
        raise UsageError("stop.patience", "a run whose steps are not known", "none with the goal step-time")

    def lacks(device: Device) -> bool:
        return (goal.name == "cost" and device.price_USD_per_h is None) or (
            goal.name == "energy" and not device.power_busy_W
        )

    lacking = [name for name in plan.topology.workers if lacks(plan.topology.device(name))]
    if lacking:
        some = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        raise UsageError(f"--goal {goal.name}", f"devices of {some} without it", goal.missing())


def _nearest(goal: Goal, swept: PlannedSweep) -> tuple[str, str]:
    """Return (text on how near the best run came to the target, text on what would help)."""
    if not goal.learns:
        return "", goal.missing()
    name = goal.name.removeprefix("time-to-")
    runs = [run for run in swept.runs if run is not None]
    tables = [
        judged(run.metrics, run.summary, name) if run.summary["algorithm"] == SCRIPT else run.metrics for run in runs
    ]
    values = [value for table in tables for value in table.loc[table["name"].isin((name, f"eval_{name}")), "value"]]
    if not values:
        return f" (no evaluation of this workload gives {name})", f"a workload with {name}, or another goal"
    return f" (the best {name} was {max(values) if name == 'accuracy' else min(values):.4g})", goal.missing()


def _write(found: WhatIf, *, report: bool) -> None:
    """Write the answer as JSON, the table and, with *report*, the page; each file atomically."""
    texts = {TABLE: found.table.to_csv(index=False), ANSWER: json.dumps(found.to_dict(), indent=2) + "\n"}
    if report:
        from simcluster.lab.what_if.report import render

        texts[REPORT] = render(found)
    found.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_whole(found.folder, name, content=text.encode())
