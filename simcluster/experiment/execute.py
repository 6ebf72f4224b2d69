"""Execute a plan, which is an experiment that has been read, and write the run's directory."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcluster.algorithms.facts import facts_of
from simcluster.backend import backend_named, real_nodes
from simcluster.checkpoints.gather import CheckpointKeeping
from simcluster.checkpoints.restore import RestoredState
from simcluster.checkpoints.store import checkpoints
from simcluster.documents.captured.source import copy_sources, write_sources
from simcluster.documents.own_frames import own_frames
from simcluster.documents.script_code import files_of_script
from simcluster.documents.user_code import files_of
from simcluster.errors import NodeFailed, PeerLost, RunError, UsageError, WorldFailed
from simcluster.experiment.checkpointing import conclude, keeping_of, restart_of  # fmt: skip
from simcluster.experiment.compute import Options, check_compute, nodes_here, settled
from simcluster.experiment.hints import hints_of
from simcluster.experiment.interval import doubts_of, intervals, take_option
from simcluster.experiment.needed_memory import predict_memory
from simcluster.experiment.node import RESUMES, remember
from simcluster.experiment.odd_values import odd_values
from simcluster.experiment.preflight import check_memory, warn_of_misspelt
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.fit import left_out
from simcluster.experiment.script_memory import misfits_of_script
from simcluster.experiment.shared_state import SharedState
from simcluster.experiment.unreached import unreached
from simcluster.fault_plans.kinds import faults_to_come
from simcluster.job import ClusterJob, places
from simcluster.logs.setup import about
from simcluster.paths.given_path import given_path
from simcluster.process.kernels import stay_portable
from simcluster.results import Run
from simcluster.runs import words
from simcluster.runs.destination import check_folder
from simcluster.runs.doubts import SHARED, SYSTEM
from simcluster.runs.folder import LOGS, TRACEBACK
from simcluster.runs.record import CodeDoubt, RunRecord
from simcluster.runs.write import write_run
from simcluster.scripts.run_script import NAME as SCRIPT
from simcluster.scripts.run_script import files_kept, script_attempts
from simcluster.version import __version__
from simcluster.watching.live_file import LiveFile
from simcluster.watching.telling import Follower, Watcher, Watchers

log = logging.getLogger("simcluster.run")

Progress = Callable[[int, int], None]
"""A callback that takes (steps done, total steps)."""

Output = Callable[[str, str], None]
"""A callback that takes (node name, line) for each line that a node on another machine prints."""


def run_plan(
    plan: Experiment,
    *,
    out: str | Path,
    options: Options | None = None,
    report: bool = True,
    progress: Progress | None = None,
    on_output: Output | None = None,
    watcher: Watcher | None = None,
    follower: Follower | None = None,
    begins_with: RestoredState | None = None,
    with_hints: bool = False,
    prints: bool = True,
) -> Run:
    """Run *plan* and return the run; see `run` for the arguments that it shares.

    *begins_with*: a checkpoint's state. *with_hints*: note settings that make the run far faster.
    *prints*: show the output of a script's rank 0 in the terminal.
    """
    folder = given_path(out)
    check_folder(folder)
    given = dict(options or {})
    _check_worlds(plan, given, begins_with)
    check_compute(plan, given)
    plan = settled(plan, given)
    needed = check_memory(plan)
    _check_portable(plan, wanted=bool(given.get("portable")))
    warn_of_misspelt(plan)
    write_sources(plan.own_code)
    # A resumed run may be written to another folder, which then needs its own copy of the sources.
    if begins_with is not None:
        copy_sources(plan.own_code, folder)
    keeping, store = keeping_of(plan, folder, begins_with)
    replicas = take_option(plan, given)
    live = LiveFile(folder, plan.topology)
    seen = live if watcher is None else Watchers(watcher, live)
    job = _job(plan, folder, given, progress, on_output, keeping, prints=prints)
    job = replace(job, watcher=seen, follower=follower)
    if follower is not None:
        follower.offset_s, follower.config = keeping.began_s, plan.document
    # The nodes of a script read new settings for each attempt, so a cached plan would not fit.
    if plan.algorithm_name != SCRIPT:
        remember(job.config_json, plan)
    about(job=plan.name)
    state = SharedState(plan)
    log.info("%s on %s begins, of %d nodes, seed %d", plan.name, plan.backend, len(plan.topology.workers), plan.seed)
    record = _record(plan, job, folder, live, prints=prints)
    try:
        samples = conclude(record, plan, keeping)
        predict_memory(record, needed)
        _note_doubts(record, plan, state, job)
        record.extra["one_machine"] = len(nodes_here(plan, given)) == len(plan.topology.workers)
        record.extra["notes"] = unreached(plan, job.faults, record) + (hints_of(plan, record) if with_hints else [])
        if replicas and record.error is None and begins_with is None:
            record.extra["intervals"] = intervals(plan, job, replicas)
            record.extra[SHARED] += doubts_of(plan.topology)
        finished = Run(write_run(folder, plan.document, plan.topology, record, __version__, samples=samples))
        if report:
            page = finished.write_report(plan.topology)
            if given.get("coordinator"):
                real_nodes().show_report(job, page)
        store.drop_others()
    except RunError as error:
        error.seed = plan.seed
        raise
    if record.error is not None:
        raise _failure(record.error, finished, plan, folder)
    _log_end(finished, record)
    return finished


def _check_worlds(plan: Experiment, options: Options, begins_with: RestoredState | None) -> None:
    """Raise UsageError for a world that would begin at time 0 again, later in its run."""
    if plan.worlds and begins_with is not None:
        raise UsageError("world", "a run that resumes", "none: a world would begin again; run without a checkpoint")
    if plan.worlds and options.get("max_restarts"):
        raise UsageError("max_restarts", str(options["max_restarts"]), "0 with a world, which would begin again")


def _check_portable(plan: Experiment, *, wanted: bool) -> None:
    """Raise UsageError if portable kernels are *wanted* where nothing is computed."""
    if wanted and plan.numerics == "none":
        raise UsageError("portable", "true with numerics: none", "numerics: real, since nothing is computed")
    if stay_portable() and not wanted:
        log.warning("this process keeps the portable kernels that an earlier run asked for; a new process has its own")


def _log_end(run: Run, record: RunRecord) -> None:
    took = (run.summary["steps"], record.elapsed_s, record.wall_s)
    log.info("the run is done: %d steps in %.6g s, %.1f s of wall time, in %s", *took, run.folder)


NOT_KEPT = "nothing of this run is kept; with checkpoint: {every: N} a run can be resumed"
"""The note after a Ctrl-C without checkpoints."""


def _note_doubts(record: RunRecord, plan: Experiment, state: SharedState, job: ClusterJob) -> None:
    """Add to *record* the findings from which its warnings follow; see simcluster.runs.doubts."""
    record.extra[SHARED] = state.warnings(record)
    record.extra["odd"] = odd_values(plan)
    record.extra["misfits"] = misfits_of_script(record, plan)
    record.extra["left_out"] = left_out(plan)
    record.extra["portable"] = job.options.get("portable", False)
    shortcuts = job.options.get("shortcuts", True)
    if not isinstance(shortcuts, str):
        shortcuts = "" if shortcuts else "none"
    record.extra["shortcuts"] = shortcuts
    drawn = [CodeDoubt(SYSTEM, what, at, 1) for what, at in plan.noticed]
    record.extra["noticed"] = [*record.extra.get("noticed", ()), *drawn]


def _record(plan: Experiment, job: ClusterJob, folder: Path, live: LiveFile, *, prints: bool) -> RunRecord:
    """Run *job* on its backend and return its record.

    Add the seed of *plan* to a RunError, and notes about what the run has kept to a
    KeyboardInterrupt.
    """
    on_this = prints and plan.backend == "sockets" and not (job.remotes[0] or job.addresses[0])
    try:
        with files_kept(plan.document["algorithm"], folder, job.names[0] if on_this else None):
            record = backend_named(plan.backend).run_cluster(job)
    except RunError as error:
        error.seed, error.folder = plan.seed, None
        raise
    except KeyboardInterrupt as end:
        place = f"; what its ranks printed and wrote is in {folder}" if folder.is_dir() else ""
        without = [f"this run has no results{place}" if plan.algorithm_name == SCRIPT else NOT_KEPT]
        for line in _ways_on(plan, folder) if plan.checkpoint is not None else without:
            end.add_note(line)
        raise
    finally:
        live.close()
    return record


def _failure(error: RunError, finished: Run, plan: Experiment, folder: Path) -> RunError:
    """Return *error* with notes on user code, files, warnings and how to resume."""
    error.seed, error.folder = plan.seed, str(folder)
    if isinstance(error, (NodeFailed, WorldFailed)):
        for frame in own_frames(error.details):
            error.add_note(frame)
        error.add_note(f"its traceback: {folder / TRACEBACK}")
    if isinstance(error, PeerLost):
        said = folder / LOGS / f"{error.name}.log"
        if said.is_file() and said.stat().st_size:
            error.add_note(f"its last messages: {said}")
    for line in (*words.warnings(finished.summary), *_ways_on(plan, folder)):
        error.add_note(line)
    return error


def _ways_on(plan: Experiment, folder: Path) -> list[str]:
    """Return a line that says how to resume an unfinished run; [] if it cannot be resumed."""
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
    keeping: CheckpointKeeping,
    *,
    prints: bool,
) -> ClusterJob:
    workers = plan.topology.workers
    addresses, remotes = places(plan.topology, options) if plan.backend == "sockets" else ([], [])
    if plan.backend != "sim" and plan.topology.inbox_bytes is not None:
        options = {"inbox_bytes": plan.topology.inbox_bytes, **options}
    # Show the progress of rank 1: the steps of rank 0, if it is a parameter server, are those of
    # all workers.
    observed = min(1, len(workers) - 1)

    def on_progress(rank: int, step: int) -> None:
        if progress is not None and rank == observed:
            progress(min(step, plan.steps), plan.steps)

    own = plan.own_code  # a remote node needs this code before it can read the experiment
    restored = keeping.restored
    config_json = json.dumps(plan.document | ({} if restored is None else {RESUMES: True}))
    again = None
    files = files_of(own)
    if plan.algorithm_name == SCRIPT:
        attempts = script_attempts(plan.document, folder, options.get("max_restarts", 0), prints)
        config_json, again = next(attempts), lambda: (next(attempts), "the script's own files")
        files = files_of_script(Path(plan.algorithm_settings["file"]), plan.algorithm_settings["module"])
    past: tuple[Any, ...] = () if restored is None else (restored.happened_s, restored.step, restored.happened)
    return ClusterJob(
        names=workers,
        config_json=config_json,
        seed=plan.seed,
        addresses=addresses,
        topology=plan.topology,
        log_folder=folder / "logs" if plan.backend != "sim" else None,
        time_s=None if plan.time_s is None else plan.time_s - keeping.began_s,
        worlds=plan.worlds,
        faults=faults_to_come(plan.faults, keeping.began_s, *past),
        options=options,
        on_progress=None if progress is None or plan.planned_steps is None else on_progress,
        remotes=remotes,
        files=files if any(remotes) else (),
        on_output=on_output,
        about={
            "name": plan.name,
            "algorithm": plan.algorithm_name.replace("\\", "/").rpartition("/")[2],
            "topology": plan.topology.name,
            **({} if plan.planned_steps is None else {"steps": plan.planned_steps}),
        },
        again=again or restart_of(plan, folder, keeping, config_json),
        keeping=keeping,
        rests=facts_of(plan.algorithm).rests(plan.algorithm_settings),
    )
