"""Run an experiment, or resume a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcluster.checkpoints.manifest import Manifest
from simcluster.documents.user_code import refuse_while_loading
from simcluster.errors import CheckpointError, in_short
from simcluster.experiment.checkpointing import (
    begin_with,
    check_nothing_to_resume,
    last_before_the_end,
    last_complete,
)  # fmt: skip
from simcluster.experiment.execute import Output, Progress, run_plan
from simcluster.experiment.read.given import (
    AnyAlgorithm,
    AnyExperiment,
    AnyScript,
    AnyTopology,
    AnyWorkload,
    script_keys,
)
from simcluster.experiment.read.read import read_experiment
from simcluster.fault_plans.plan import planned
from simcluster.paths.given_path import given_path
from simcluster.paths.last_run import last_run
from simcluster.process.kernels import heed_portable
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.folder import SUMMARY, read_summary
from simcluster.runs.home import RunHome
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.watching.notebook import notebook_progress
from simcluster.watching.telling import Follower, Watcher

log = logging.getLogger("simcluster.run")


@in_short
def run(
    experiment: AnyExperiment | None = None,
    *,
    backend: str | None = None,
    topology: AnyTopology | None = None,
    algorithm: AnyAlgorithm | None = None,
    workload: AnyWorkload | None = None,
    script: AnyScript | None = None,
    args: Sequence[object] = (),
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    compute: str | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
    progress: Progress | None = None,
    on_output: Output | None = None,
    watcher: Watcher | None = None,
    follower: Follower | None = None,
    **keys: Any,
) -> Run:
    """Run an experiment on a backend, and return the run.

        run("quickstart", backend="sockets")
        run("quickstart", algorithm=my_algorithm, overrides={"stop.steps": 100})
        run(topology=Topology.star(4), algorithm="edp", workload=make_workload, stop={"steps": 100})
        run(script="train.py", args=["--lr", 0.1], topology="smolcluster")

    - *experiment*: a file, a shipped name or a mapping; without it, give the keys as arguments.
    - *backend*: "sim" (the default), "sockets" or "torch".
    - *topology*: a file, a shipped name, a mapping, a Topology or a networkx graph.
    - *algorithm*: a name, "file.py:function", or a function; `functools.partial` gives it settings.
    - *workload*: a Workload, or as for *algorithm*.
    - *script*: a torch.distributed program, or the keys of the block `script`. *args*: its arguments.
    - *overrides*: dotted key -> value, such as {"algorithm.pull_interval": 4}. *keys* replace whole
      blocks, such as stop={"steps": 3}.
    - *compute*: the device that every node computes on. *options*: the backend's own.
    - *out*: the run's directory, by default a new one in `runs/`.
    - *report*: whether to write a report; skip it for large numbers of runs.
    - *progress*: called with (steps done, total steps); by default, a notebook shows them.
    - *on_output*: called with (node, line) for each line that a node on another machine prints.
    - *watcher*: an observer of the live run, which cannot affect it (simcluster.watching).
    - *follower*: an observer of the rows that the run records (simcluster.lab.tracking.live).

    A function without a file works on every backend: its source travels with the run.

    Raise UsageError before anything is written; RunError, with *seed* and *folder*, after a failure.
    """
    refuse_while_loading()
    heed_portable(options or {})
    keys |= script_keys(script, args)
    given = {"topology": topology, "workload": workload, "compute": compute, **keys}
    changed = {key: value for key, value in given.items() if value is not None and experiment is not None}
    if experiment is None:
        parts = {"topology": topology, "algorithm": algorithm, "workload": workload}
        experiment = {**{key: part for key, part in parts.items() if part is not None}, **keys}
        topology = algorithm = workload = None
        keys = {}
    with RunHome(out, {**changed, **(overrides or {})}) as home:
        plan = read_experiment(
            experiment, {**keys, **(overrides or {})}, topology=topology, algorithm=algorithm, workload=workload,
            seed=seed, backend=backend, compute=compute, faults=planned(), home=home,
        )  # fmt: skip
        folder = home(plan.name, plan.algorithm_name, plan.backend, plan.seed)
        check_nothing_to_resume(folder)
        with notebook_progress(plan.name, progress) as shown:
            return told(run_plan(
                plan, out=folder, options=options, report=report, progress=shown, on_output=on_output,
                watcher=watcher, follower=follower, with_hints=True,
            ))  # fmt: skip


@in_short
def resume(
    run: str | Path | Run,
    *,
    step: int | None = None,
    backend: str | None = None,
    topology: AnyTopology | None = None,
    overrides: Mapping[str, Any] | None = None,
    compute: str | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
    progress: Progress | None = None,
    on_output: Output | None = None,
    watcher: Watcher | None = None,
    follower: Follower | None = None,
) -> Run:
    """Resume the run in the directory *run* from its last complete checkpoint, or that of *step*.

    The results are written to *out*, by default to *run* itself.

    *overrides* may change anything except what is trained and how (algorithm, workload, seed): `{"stop.steps": 200}`
    for a longer run. *topology* may have a different number of workers, *backend* may differ, too. The other arguments
    are those of `run`. Raise UsageError, usually a CheckpointError, before anything is written; RunError as `run` does.
    """
    heed_portable(options or {})
    folder = run.folder if isinstance(run, Run) else last_run(given_path(run, "run"))
    if not folder.is_dir():
        raise CheckpointError("run", f"no folder {folder}", "the folder of a run with checkpoints")
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else None
    if summary is not None and summary["algorithm"] == SCRIPT:
        expected = "another kind of run: a script resumes from its own files; --max-restarts lets it do so in one run"
        raise CheckpointError("run", f"{folder}, a script's", expected)
    found = last_complete(folder, step)
    plan = read_experiment(
        found.manifest.config, overrides, topology=topology, backend=backend, compute=compute, folder=folder,
        resumes=True,
    )  # fmt: skip
    if step is None and (summary is None or summary["status"] != "done"):
        found = last_before_the_end(folder, plan)
    begins_with = begin_with(found, plan)
    # If the overrides have a fault plan, all of its faults are still to come.
    plans_faults = any(key.split(".")[0] == "faults" for key in overrides or {})
    happened_s, happened = (None, []) if plans_faults else _happened(found.manifest, summary)
    return told(run_plan(
        plan, out=folder if out is None else out, options=options, report=report, progress=progress,
        on_output=on_output, watcher=watcher, follower=follower,
        begins_with=replace(begins_with, happened_s=happened_s, happened=happened),
    ))  # fmt: skip


def told(run: Run) -> Run:
    """Log the warnings and notes of *run*, and return it."""
    for line in (*words.warnings(run.summary), *words.notes(run.summary)):
        log.warning("%s", line)
    return run


def _happened(manifest: Manifest, summary: Mapping[str, Any] | None) -> tuple[float | None, list[Any]]:
    """Return (the time until which the faults of a resumed run have happened, None if unknown;
    their entries in the plan).

    It is the latest such time in the *manifest* of the checkpoint and the *summary* of the same
    run, and all entries of both.
    """
    times_s, found = [manifest.happened_s], [*manifest.happened]
    if summary is not None and manifest.run in (summary.get(key, {}).get("run") for key in ("checkpoints", "resumed")):
        rows = summary.get("faults", [])
        found += [*summary.get("checkpoints", {}).get("happened", []), *(row.get("plan") for row in rows)]
        times_s.append(summary["elapsed_s"])
        times_s += [start_s for row in rows for start_s, _ in row["spells_s"]]
    known_s = max((time_s for time_s in times_s if time_s is not None), default=None)
    return known_s, [entry for place, entry in enumerate(found) if entry not in found[:place]]
