"""Run an experiment on a backend, which is imported by name at run time, or resume one; write its folder."""

from __future__ import annotations

import importlib
import json
import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.checkpoints.gather import Keeping
from simcluster.checkpoints.manifest import Manifest
from simcluster.checkpoints.restore import Restored
from simcluster.checkpoints.store import checkpoints
from simcluster.documents.captured.source import write_sources
from simcluster.documents.user_code import files_of, refuse_while_loading
from simcluster.errors import CheckpointError, NodeFailed, PeerLost, Problem, RunError, UsageError, in_short
from simcluster.experiment.checkpointing import (
    begin_with,
    check_nothing_to_resume,
    conclude,
    keeping_of,
    last_before_the_end,
    last_complete,
    restart_of,
)  # fmt: skip
from simcluster.experiment.compute import check_compute, nodes_here, settled
from simcluster.experiment.fit import left_out
from simcluster.experiment.given import AnyAlgorithm, AnyExperiment, AnyTopology, AnyWorkload
from simcluster.experiment.interval import intervals, take_option
from simcluster.experiment.job import ClusterJob, places
from simcluster.experiment.needed import predict_memory
from simcluster.experiment.node import remember
from simcluster.experiment.own_frames import own_frames
from simcluster.experiment.preflight import check_memory, warn_of_misspelt
from simcluster.experiment.read import Experiment, read_experiment
from simcluster.experiment.shared_state import SharedState
from simcluster.fault_plans.kinds import faults_to_come
from simcluster.fault_plans.plan import planned
from simcluster.logs.setup import about
from simcluster.paths.given_path import given_path
from simcluster.process.kernels import heed_portable, stay_portable
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.doubts import SHARED
from simcluster.runs.folder import LOGS, SUMMARY, TRACEBACK, check_folder, default_folder, read_summary
from simcluster.runs.record import RunRecord
from simcluster.runs.write import write_run
from simcluster.version import __version__
from simcluster.watching.live_file import LiveFile
from simcluster.watching.notebook import notebook_progress
from simcluster.watching.telling import Follower, Watcher, Watchers

log = logging.getLogger("simcluster.run")

Progress = Callable[[int, int], None]
"""Called with (steps done, total steps)."""

Output = Callable[[str, str], None]
"""Called with (node name, a line that it printed), for nodes on other machines."""


@in_short
def run(
    experiment: AnyExperiment | None = None,
    *,
    backend: str | None = None,
    topology: AnyTopology | None = None,
    algorithm: AnyAlgorithm | None = None,
    workload: AnyWorkload | None = None,
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

    - *experiment*: a file, a shipped name or a mapping; without one, the file's keys are arguments.
    - *backend*: "sim" (the default), "sockets" or "torch".
    - *topology*: a file, a shipped name, a mapping, a Topology or a networkx graph.
    - *algorithm*: a name, "file.py:function", or a function; `functools.partial` gives it settings.
    - *workload*: the same, or a Workload.
    - *overrides*: values by dotted key, {"algorithm.pull_interval": 4}; *keys* replace whole blocks: stop={"steps": 3}.
    - *compute*: what every node computes on. *options*: the backend's own.
    - *out*: the run's directory, by default in `runs/`. *report*: can be skipped for large numbers of runs.
    - *progress*: called with (steps done, steps in all); by default, a notebook shows them. *on_output*: called with
      (node, line) for what nodes on other machines print.
    - *watcher*: sees the run live (simcluster.watching) without affecting it. *follower*: sees its rows
      (simcluster.tracking.live).

    A function from a notebook's cell, the prompt or the main script is written into the run's directory, with the
    imports, functions and constants that it names, and works on every backend.

    Raise UsageError before anything is written; RunError, with *seed* and *folder* filled in, after the failed run's
    directory has been written.
    """
    refuse_while_loading()
    heed_portable(options or {})
    if experiment is None:
        parts = {"topology": topology, "algorithm": algorithm, "workload": workload}
        experiment = {**{key: part for key, part in parts.items() if part is not None}, **keys}
        topology, algorithm, workload, keys = None, None, None, {}
    plan = read_experiment(
        experiment, {**keys, **(overrides or {})}, topology=topology, algorithm=algorithm, workload=workload, seed=seed,
        backend=backend, compute=compute, faults=planned(), home=partial(_home, out),
    )  # fmt: skip
    check_nothing_to_resume(_folder(plan, out))
    with notebook_progress(plan.name, progress) as shown:
        return told(run_plan(
            plan, out=out, options=options, report=report, progress=shown, on_output=on_output, watcher=watcher,
            follower=follower,
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
    """Resume the run in folder *run*, into *out* or the same folder, from its last complete checkpoint or that of
    *step*.

    *overrides* may change anything except what is trained and how (algorithm, workload, seed): `{"stop.steps": 200}`
    for a longer run. *topology* may have a different number of workers, *backend* may differ, too. The other arguments
    are those of `run`. Raise UsageError, usually a CheckpointError, before anything is written; RunError as `run` does.
    """
    heed_portable(options or {})
    folder = run.folder if isinstance(run, Run) else given_path(run, "run")
    if not folder.is_dir():
        raise CheckpointError("run", f"no folder {folder}", "the folder of a run with checkpoints")
    found = last_complete(folder, step)
    plan = read_experiment(found.manifest.config, overrides, topology=topology, backend=backend, compute=compute)
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else None
    if step is None and (summary is None or summary["status"] != "done"):
        found = last_before_the_end(folder, plan)
    begins_with = begin_with(found, plan)
    plans_faults = any(key.split(".")[0] == "faults" for key in overrides or {})  # which are all to come
    happened_s = None if plans_faults else _happened_s(found.manifest, summary)
    return told(run_plan(
        plan, out=folder if out is None else out, options=options, report=report, progress=progress,
        on_output=on_output, watcher=watcher, follower=follower,
        begins_with=replace(begins_with, happened_s=happened_s),
    ))  # fmt: skip


def told(run: Run) -> Run:
    """Return *run*, and log its warnings."""
    for line in words.warnings(run.summary):
        log.warning("%s", line)
    return run


def _happened_s(manifest: Manifest, summary: Mapping[str, Any] | None) -> float | None:
    """Return the time until which faults of *manifest*'s run have happened, from it and its *summary*."""
    times_s = [manifest.happened_s]
    if summary is not None and manifest.run in (summary.get(key, {}).get("run") for key in ("checkpoints", "resumed")):
        times_s.append(summary["elapsed_s"])
        times_s += [start_s for row in summary.get("faults", ()) for start_s, _ in row["spells_s"]]
    return max((time_s for time_s in times_s if time_s is not None), default=None)


def run_plan(
    plan: Experiment,
    *,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
    progress: Progress | None = None,
    on_output: Output | None = None,
    watcher: Watcher | None = None,
    follower: Follower | None = None,
    begins_with: Restored | None = None,
) -> Run:
    """Run a *plan* that has been read already; see `run`. *begins_with*: a checkpoint; see `resume`."""
    folder = _folder(plan, out)
    check_folder(folder)
    given = dict(options or {})
    check_compute(plan, given)
    plan = settled(plan, given)
    needed = check_memory(plan)
    if given.get("portable") and plan.numerics == "none":
        raise UsageError(Problem("portable", "true with numerics: none", "numerics: real, since nothing is computed"))
    if stay_portable() and not given.get("portable"):
        log.warning("this process keeps the portable kernels that an earlier run asked for; a new process has its own")
    warn_of_misspelt(plan)
    write_sources(plan.own_code)
    keeping, store = keeping_of(plan, folder, begins_with)
    replicas = take_option(plan, given)
    live = LiveFile(folder, plan.topology)
    seen = live if watcher is None else Watchers(watcher, live)
    job = replace(_job(plan, folder, given, progress, on_output, keeping), watcher=seen, follower=follower)
    if follower is not None:
        follower.offset_s = keeping.began_s
    remember(job.config_json, plan)
    about(job=plan.name)
    state = SharedState(plan)
    log.info("%s on %s begins, of %d nodes, seed %d", plan.name, plan.backend, len(plan.topology.workers), plan.seed)
    try:
        record: RunRecord = importlib.import_module(f"simcluster_backends.{plan.backend}").run_cluster(job)
    except RunError as error:
        error.seed, error.folder = plan.seed, None
        raise
    except KeyboardInterrupt as end:
        for line in _ways_on(plan, folder):
            end.add_note(line)
        raise
    finally:
        live.close()
    try:
        samples = conclude(record, plan, keeping)
        predict_memory(record, needed)
        record.extra[SHARED] = state.warnings(record)
        record.extra["left_out"] = left_out(plan.algorithm, plan.algorithm_settings, plan.topology)
        record.extra["portable"] = job.options.get("portable", False)
        record.extra["one_machine"] = len(nodes_here(plan, given)) == len(plan.topology.workers)
        if replicas and record.error is None and begins_with is None:
            record.extra["intervals"] = intervals(plan, job, replicas)
        finished = Run(write_run(folder, plan.document, plan.topology, record, __version__, samples=samples))
        if report:
            from simcluster.reports.report import write_report

            write_report(finished, plan.topology)
        store.drop_others()
    except RunError as error:
        error.seed = plan.seed
        raise
    if record.error is not None:
        failure = record.error if isinstance(record.error, RunError) else RunError(str(record.error))
        failure.seed, failure.folder = plan.seed, str(folder)
        if isinstance(failure, NodeFailed):
            for frame in own_frames(failure.details):
                failure.add_note(frame)
            failure.add_note(f"its traceback: {folder / TRACEBACK}")
        if isinstance(failure, PeerLost):
            said = folder / LOGS / f"{failure.name}.log"
            if said.is_file() and said.stat().st_size:
                failure.add_note(f"its last messages: {said}")
        for line in (*words.warnings(finished.summary), *_ways_on(plan, folder)):
            failure.add_note(line)
        raise failure
    took = (finished.summary["steps"], record.elapsed_s, record.wall_s)
    log.info("the run is done: %d steps in %.6g s, %.1f s of wall time, in %s", *took, folder)
    return finished


def _folder(plan: Experiment, out: str | Path | None) -> Path:
    return _home(out, plan.name, plan.algorithm_name, plan.backend, plan.seed)


def _home(out: str | Path | None, name: str, algorithm: str, backend: str, seed: int) -> Path:
    return given_path(out) if out is not None else default_folder(name, algorithm, backend, seed)


def _ways_on(plan: Experiment, folder: Path) -> list[str]:
    """Return how to resume an unfinished run, if it can be."""
    found = checkpoints(folder) if plan.checkpoint is not None else []
    if not found or found[-1].step >= plan.steps:
        return []
    return [f"to resume from step {found[-1].step}: simcluster resume {shlex.quote(str(folder))}"]


def _job(
    plan: Experiment,
    folder: Path,
    options: dict[str, Any],
    progress: Progress | None,
    on_output: Output | None,
    keeping: Keeping,
) -> ClusterJob:
    workers = plan.topology.workers
    addresses, remotes = places(plan.topology, options) if plan.backend == "sockets" else ([], [])
    if plan.backend != "sim" and plan.topology.inbox_bytes is not None:
        options = {"inbox_bytes": plan.topology.inbox_bytes, **options}
    observed = min(1, len(workers) - 1)  # a parameter server's steps are its workers' combined

    def on_progress(rank: int, step: int) -> None:
        if progress is not None and rank == observed:
            progress(min(step, plan.steps), plan.steps)

    own = plan.own_code  # which a remote node needs before it can read this experiment
    config_json = json.dumps(plan.document)
    happened_s = keeping.restored.happened_s if keeping.restored is not None else None
    return ClusterJob(
        names=workers,
        config_json=config_json,
        seed=plan.seed,
        addresses=addresses,
        topology=plan.topology,
        log_folder=folder / "logs" if plan.backend != "sim" else None,
        time_s=None if plan.time_s is None else plan.time_s - keeping.began_s,
        faults=faults_to_come(plan.faults, keeping.began_s, happened_s),
        options=options,
        on_progress=on_progress,
        remotes=remotes,
        files=files_of(own) if any(remotes) else (),
        on_output=on_output,
        about={
            "name": plan.name,
            "algorithm": plan.algorithm_name.replace("\\", "/").rpartition("/")[2],
            "topology": plan.topology.name,
            "steps": plan.steps,
        },
        again=restart_of(plan, folder, keeping, config_json),
        keeping=keeping,
    )
