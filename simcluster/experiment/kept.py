"""Checkpoints of one run: where they go, what it begins with, what is said of both when it is over.

This file knows experiments and run folders. It must not know a backend, nor what is in a checkpoint.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from simcluster.algorithms.resuming import why_it_stays
from simcluster.checkpoints.gather import Gather
from simcluster.checkpoints.keeping import Keeping
from simcluster.checkpoints.restore import Restored, check_same_training, restored
from simcluster.checkpoints.store import Checkpoint, Store, latest
from simcluster.errors import CheckpointError, Problem, UsageError
from simcluster.experiment.fault_kinds import Crash, Fault, Leave, Restart
from simcluster.experiment.read import Experiment
from simcluster.results.folder import CHECKPOINTS, SUMMARY
from simcluster.results.record import RunRecord
from simcluster.results.samples import Samples, samples_of
from simcluster.results.unheard import is_known


def keeping_of(plan: Experiment, folder: Path, begins_with: Restored | None) -> tuple[Keeping, Store]:
    """What the backend is given, and where it ends up."""
    run = begins_with.run if begins_with is not None else secrets.token_hex(8)
    settings = plan.checkpoint
    if settings is None:
        return Keeping(None, begins_with), Store(folder / CHECKPOINTS, run)
    store = Store(folder / CHECKPOINTS, run, keep=settings.keep, best=settings.best)
    return Keeping(Gather(store, plan.document, len(plan.topology.workers)), begins_with), store


def restart_of(
    plan: Experiment, folder: Path, keeping: Keeping, config_json: str
) -> Callable[[], tuple[str, str] | None]:
    """For a backend that begins a lost run again: where from, which *keeping* then has. See `ClusterJob.again`."""

    def again() -> tuple[str, str] | None:
        if keeping.gather is None or not keeping.gather.written:
            return None
        try:
            found = latest(folder / CHECKPOINTS)
            keeping.restored = begin_with(found, plan)
        except CheckpointError:
            return None
        keeping.gather.begin_again(found.step)
        return config_json, f"the checkpoint of step {found.step}"

    return again


def begin_with(checkpoint: Checkpoint, plan: Experiment) -> Restored:
    """*checkpoint* for the ranks of *plan*. Raises CheckpointError if it cannot go on from there."""
    manifest, size = checkpoint.manifest, len(plan.topology.workers)
    check_same_training(manifest, plan.document)
    why = why_it_stays(plan.document["algorithm"])
    if size != manifest.world_size and why:
        raise CheckpointError("topology", f"{size} ranks", f"{manifest.world_size}, as in the checkpoint, since {why}")
    found = restored(checkpoint, size, by_epochs="epochs" in plan.document["stop"])
    if found.step >= plan.steps:
        expected = f"more than {found.step}, the step of the checkpoint: the run is over there"
        raise CheckpointError("stop", f"{plan.steps} steps", expected)
    if plan.time_s is not None and manifest.time_s >= plan.time_s:
        expected = f"more than {manifest.time_s:g} s, the time of the checkpoint: the run is over there"
        raise CheckpointError("stop.time", f"{plan.time_s:g} s", expected)
    return found


def faults_left(faults: Sequence[Fault], began_s: float) -> tuple[Fault, ...]:
    """Those of *faults* that a run which goes on at *began_s* has before it. Who had died then lives again."""
    left = []
    for fault in faults:
        spells = tuple(
            (max(start_s - began_s, 0.0), end_s - began_s) for start_s, end_s in fault.spells if end_s > began_s
        )
        if isinstance(fault, (Crash, Restart, Leave)):
            spells = tuple(
                (start_s - began_s, end_s - began_s) for start_s, end_s in fault.spells if start_s >= began_s
            )
        if spells:
            left.append(replace(fault, spells=spells))
    return tuple(left)


def check_nothing_to_resume(folder: Path) -> None:
    """Raises UsageError if *folder* has checkpoints of a run that did not end: a new one would replace them."""
    if not (folder / SUMMARY).is_file() and any((folder / CHECKPOINTS).glob("step-*.json")):
        expected = f"another folder, or `simcluster resume {folder}`; or remove its checkpoints"
        raise UsageError(Problem("out", f"{folder}, which has checkpoints of a run that did not end", expected))


def conclude(record: RunRecord, plan: Experiment, keeping: Keeping) -> Samples | None:
    """Puts what is known of checkpoints and samples into *record*, and its times behind those of the run before."""
    begun = keeping.restored
    if begun is not None:
        record.begin_at(begun.time_s)
        # Those of a run that began again are told in its whole time already: see Restarts.
        for row in record.extra.get("faults", ()) if "restarts" not in record.extra else ():
            row["spells_s"] = [
                [None if time_s is None else time_s + begun.time_s for time_s in spell] for spell in row["spells_s"]
            ]
        record.extra["resumed"] = {"run": begun.run, "step": begun.step, "time_s": begun.time_s}
        if begun.world_size != len(record.nodes):
            record.extra["resumed"]["world_size"] = begun.world_size
    record.extra["checkpoints"] = keeping.end()
    if plan.numerics != "real" or not all(is_known(node, record.nodes) for node in record.nodes):
        return None
    samples = samples_of(record.nodes, plan.workload, plan.seed)
    record.extra["samples"] = samples.totals
    return samples
