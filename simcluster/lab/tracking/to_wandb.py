"""Write offline runs of Weights & Biases: INTO/wandb/offline-run-TIME-ID, for `wandb sync`.

Runs are always offline: no account is needed and nothing is sent. A run is written elsewhere and
then moved, so each directory in INTO/wandb is complete, and writing a run twice keeps one copy.
"""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from simcluster.lab.tracking.handover import Handover, Heading, RunDraft, TrackedValue, file_name

SETTINGS: dict[str, Any] = {
    "mode": "offline",
    "silent": True,
    "console": "off",  # This process's output is not the run's.
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,  # This process's load is not the run's either.
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


class WandbTracker:
    """A tracker that writes offline runs of Weights & Biases."""

    def __init__(self, into: str | None) -> None:
        # W&B reports its crashes over the network unless this is disabled before the import.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self.where = str(Path(into or "runs/wandb"))
        self._runs = Path(self.where).absolute() / "wandb"
        self._runs.mkdir(parents=True, exist_ok=True)
        self.look = f"wandb sync {self.where}/wandb/offline-run-*    # uploads them"

    def write(self, run: Handover) -> bool:
        if any(self._runs.glob(f"offline-run-*-{run.id}")):
            return False
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=self._runs) as partial:
            written = _write(run, Path(partial))
            shutil.move(written, self._runs / written.name)
        return True

    def draft(self, run: Heading) -> RunDraft:
        return _WandbDraft(_begun(run, self.where, run.backend))


class _WandbDraft:
    """A draft of a run in W&B.

    W&B accepts only rising steps, so points of an earlier step are left out.
    """

    def __init__(self, begun: Any) -> None:
        self._begun, self._step = begun, -1

    def add(self, values: Sequence[TrackedValue]) -> None:
        for step, found in groupby(values, key=lambda value: value.step):
            if step > self._step:
                self._begun.log({value.name: value.value for value in found}, step=step)
                self._step = step

    def close(self, *, keep: bool) -> None:
        folder = Path(self._begun.dir).parent
        self._begun.finish(exit_code=1)
        if not keep:
            shutil.rmtree(folder)


def _begun(run: Handover | Heading, folder: str, tag: str, **more: Any) -> Any:
    """Begin *run* below *folder*, with the run's time as the x axis."""
    wandb: Any = importlib.import_module("wandb")
    settings = wandb.Settings(**SETTINGS)
    begun = wandb.init(
        project=file_name(run.experiment), name=run.name, dir=folder, tags=[tag], settings=settings, **more
    )
    begun.define_metric("time_s")
    begun.define_metric("*", step_metric="time_s")
    return begun


def _write(run: Handover, folder: Path) -> Path:
    """Write *run* below *folder*; return its directory."""
    more = {"group": run.group or None, "id": run.id, "config": dict(run.params)}
    begun = _begun(run, str(folder), run.tags["backend"], **more)
    try:
        for step, values in groupby(run.values, key=lambda value: value.step):
            begun.log({value.name: value.value for value in values}, step=step)
        begun.summary.update({f"summary/{name}": value for name, value in (run.summary | run.tags).items()})
        files = Path(begun.dir)
        for path in run.files:
            # Put the files into a separate folder: W&B reserves the name "config.yaml".
            copy = files / "run" / path.name
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
            begun.save(str(copy), base_path=str(files), policy="now")
    finally:
        begun.finish(exit_code=int(run.failed))
    return files.parent
