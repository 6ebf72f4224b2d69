"""Resume a run from its last complete checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcluster.checkpoints.manifest import Manifest
from simcluster.errors import CheckpointError
from simcluster.experiment.checkpointing import begin_with, last_before_the_end, last_complete
from simcluster.experiment.read import read_experiment
from simcluster.experiment.run import Output, Progress, run_plan
from simcluster.paths.given_path import given_path
from simcluster.process.kernels import heed_portable
from simcluster.results import Run
from simcluster.runs.folder import SUMMARY, read_summary
from simcluster.watching.telling import Watcher


def resume(
    run: str | Path | Run,
    *,
    step: int | None = None,
    backend: str | None = None,
    topology: str | Path | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
    progress: Progress | None = None,
    on_output: Output | None = None,
    watcher: Watcher | None = None,
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
    plan = read_experiment(found.manifest.config, overrides, topology=topology, backend=backend)
    summary = read_summary(folder) if (folder / SUMMARY).is_file() else None
    if step is None and (summary is None or summary["status"] != "done"):
        found = last_before_the_end(folder, plan)
    begins_with = begin_with(found, plan)
    happened_s = None if _plans_faults(overrides or {}) else _happened_s(found.manifest, summary)
    return run_plan(
        plan, out=folder if out is None else out, options=options, report=report, progress=progress,
        on_output=on_output, watcher=watcher, begins_with=replace(begins_with, happened_s=happened_s),
    )  # fmt: skip


def _plans_faults(overrides: Mapping[str, Any]) -> bool:
    """Return whether *overrides* state a new fault plan, which is all to come."""
    return any(key.split(".")[0] == "faults" for key in overrides)


def _happened_s(manifest: Manifest, summary: Mapping[str, Any] | None) -> float | None:
    """Return the time until which faults of *manifest*'s run have happened, from it and its *summary*."""
    times_s = [manifest.happened_s]
    if summary is not None and manifest.run in (summary.get(key, {}).get("run") for key in ("checkpoints", "resumed")):
        times_s.append(summary["elapsed_s"])
        times_s += [start_s for row in summary.get("faults", ()) for start_s, _ in row["spells_s"]]
    return max((time_s for time_s in times_s if time_s is not None), default=None)
