"""Goes on with a run from its last complete checkpoint.

This file knows checkpoints and experiments. It must not know backends.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcluster.checkpoints.store import latest
from simcluster.errors import CheckpointError
from simcluster.experiment.kept import begin_with
from simcluster.experiment.read import read_experiment
from simcluster.experiment.run import Output, Progress, run_plan
from simcluster.results.folder import SUMMARY, Run
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
    """Goes on with the run in folder *run*, into *out* or the same folder, from its last complete checkpoint or that of
    *step*.

    *overrides* may be of anything but what is trained and how (algorithm, workload, seed): `{"stop.steps": 200}` for a
    longer run. *topology* may have another number of workers, *backend* may be another one. The other arguments are
    those of `run`. Raises UsageError, mostly a CheckpointError, before anything is written; RunError as `run` does.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    if not folder.is_dir():
        raise CheckpointError("run", f"no folder {folder}", "the folder of a run with checkpoints")
    found = latest(folder, step)
    plan = read_experiment(found.manifest.config, overrides, topology=topology, backend=backend)
    if step is None and found.step >= plan.steps and not (folder / SUMMARY).is_file():
        found = latest(folder, below=plan.steps)  # it ended, but was killed before it could say what came of it
    return run_plan(
        plan, out=folder if out is None else out, options=options, report=report, progress=progress,
        on_output=on_output, watcher=watcher, begins_with=begin_with(found, plan),
    )  # fmt: skip
