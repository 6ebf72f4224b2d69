"""Keep the checkpoints of a run, resume from one, and record both in the run's summary."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simcluster.algorithms import ALGORITHMS
from simcluster.algorithms.facts import Facts, facts_of
from simcluster.checkpoints.gather import CheckpointKeeping, Gather
from simcluster.checkpoints.manifest import Manifest
from simcluster.checkpoints.restore import RestoredState, check_same_training, restored
from simcluster.checkpoints.store import Checkpoint, Store, latest
from simcluster.errors import CheckpointError, UsageError
from simcluster.experiment.patience import evaluations_without_gain
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.restarts import later
from simcluster.runs.folder import CHECKPOINTS, SUMMARY
from simcluster.runs.record import RunRecord
from simcluster.runs.samples import SampleUses, are_known, samples_of
from simcluster.runs.summary import keep_those_that_stand


def keeping_of(plan: Experiment, folder: Path, begins_with: RestoredState | None) -> tuple[CheckpointKeeping, Store]:
    """Return (the checkpointing of a job, the store in *folder* that it writes to)."""
    run = begins_with.run if begins_with is not None else secrets.token_hex(8)
    settings = plan.checkpoint
    if settings is None:
        return CheckpointKeeping(None, begins_with), Store(folder / CHECKPOINTS, run)
    store = Store(folder / CHECKPOINTS, run, keep=settings.keep, best=settings.best)
    size = len(plan.topology.workers)
    past: dict[str, Any] = {}
    if begins_with is not None:
        past = {"happened_s": begins_with.happened_s, "happened": begins_with.happened}
    block = plan.document["algorithm"]
    facts = _facts_in(block)
    gather = Gather(
        store, plan.document, size,
        spared=facts.spared(size, block), admits=facts.spares == "workers", **past,
    )  # fmt: skip
    return CheckpointKeeping(gather, begins_with), store


def restart_of(
    plan: Experiment, folder: Path, keeping: CheckpointKeeping, config_json: str
) -> Callable[[], tuple[str, str] | None]:
    """Return the `ClusterJob.again` of a run, which loads the last checkpoint into *keeping*."""

    def again() -> tuple[str, str] | None:
        if keeping.gather is None or not keeping.gather.written:
            return None
        try:
            found = last_before_the_end(folder / CHECKPOINTS, plan)
            keeping.restored = begin_with(found, plan)
        except CheckpointError:
            return None
        keeping.gather.begin_again(found.step)
        return config_json, f"the checkpoint of step {found.step}"

    return again


def last_complete(folder: Path, step: int | None = None, *, below: int | None = None) -> Checkpoint:
    """Return the last checkpoint in *folder* that the algorithm can resume from; see `latest`."""
    return latest(folder, step, below=below, check=check_cut)


def last_before_the_end(folder: Path, plan: Experiment) -> Checkpoint:
    """Return the last checkpoint in *folder* before the last step of *plan*.

    If a run is lost after the checkpoint of its last step, that checkpoint leaves no step to make.
    """
    found = last_complete(folder)
    return found if found.step < plan.steps else last_complete(folder, below=plan.steps)


def check_cut(manifest: Manifest) -> None:
    """Raise CheckpointError if ranks in *manifest* that must be at the same step are not."""
    block = manifest.config.get("algorithm")
    spare = _facts_in(block).spared(manifest.world_size, block) if isinstance(block, dict) else range(0)
    behind = [rank for rank in manifest.behind if rank not in spare]
    if behind:
        steps = sorted({entry.step for entry in manifest.ranks})
        why = f"since this algorithm does not continue without rank {behind[0]}"
        found = f"ranks at steps {', '.join(map(str, steps))}"
        raise CheckpointError("cut", found, f"every rank at step {manifest.step}, {why}")


def begin_with(checkpoint: Checkpoint, plan: Experiment) -> RestoredState:
    """Return the state of *checkpoint* for the ranks of *plan*.

    Raise CheckpointError if *plan* cannot resume from it.
    """
    manifest = checkpoint.manifest
    size = len(plan.topology.workers)
    check_same_training(manifest, plan.document)
    check_cut(manifest)
    block = plan.document["algorithm"]
    why = _facts_in(block).why_it_stays(block)
    if size != manifest.world_size and why:
        raise CheckpointError("topology", f"{size} ranks", f"{manifest.world_size}, as in the checkpoint, since {why}")
    found = restored(checkpoint, size, by_epochs="epochs" in plan.document["stop"])
    if found.step >= plan.steps:
        expected = f"more than {found.step}, the step of the checkpoint: the run ends there"
        raise CheckpointError("stop", f"{plan.steps} steps", expected)
    patience, waited = plan.document["stop"].get("patience"), evaluations_without_gain(found.shards[0])
    if patience is not None and waited >= patience:
        expected = f"more than {waited}, the evaluations without a lower held-out loss: the run ends there"
        raise CheckpointError("stop.patience", str(patience), expected)
    if plan.time_s is not None and manifest.time_s >= plan.time_s:
        expected = f"more than {manifest.time_s:g} s, the time of the checkpoint: the run ends there"
        raise CheckpointError("stop.time", f"{plan.time_s:g} s", expected)
    return found


def _facts_in(block: Mapping[str, Any]) -> Facts:
    """Return the facts of the algorithm named in *block*; a manifest contains no user functions."""
    return facts_of(ALGORITHMS.get(block.get("name", "")))


def check_nothing_to_resume(folder: Path) -> None:
    """Raise UsageError if *folder* has checkpoints of an unfinished run, which a new run would replace."""
    if not (folder / SUMMARY).is_file() and any((folder / CHECKPOINTS).glob("step-*.json")):
        expected = f"another folder, or `simcluster resume {folder}`; or remove its checkpoints"
        raise UsageError("out", f"{folder}, which has checkpoints of an unfinished run", expected)


def conclude(record: RunRecord, plan: Experiment, keeping: CheckpointKeeping) -> SampleUses | None:
    """Add the checkpoints and samples of a finished run to *record*; return the use of the samples.

    The times of a resumed run are shifted by the time of its checkpoint. Return None if the samples
    are not known.
    """
    keep_those_that_stand(record)
    begun = keeping.restored
    if begun is not None:
        record.begin_at(begun.time_s)
        if "restarts" not in record.extra and "faults" in record.extra:
            record.extra["faults"] = later(record.extra["faults"], begun.time_s)
        record.extra["resumed"] = {"run": begun.run, "step": begun.step, "time_s": begun.time_s}
        if begun.world_size != len(record.nodes):
            record.extra["resumed"]["world_size"] = begun.world_size
    record.extra["checkpoints"] = keeping.end()
    if plan.numerics != "real" or not are_known(record.nodes):
        return None
    samples = samples_of(record.nodes, plan.workload, plan.seed)
    record.extra["samples"] = samples.totals
    return samples
