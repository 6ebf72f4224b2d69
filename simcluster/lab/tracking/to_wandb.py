"""Runs as offline runs of Weights & Biases: INTO/wandb/offline-run-TIME-ID, which `wandb sync` uploads.

It is always offline: it needs no account and sends nothing. A run is written elsewhere and then moved, so every
directory there is complete, and writing a run twice keeps one.
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
    "console": "off",  # the program's output is not part of the run
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,  # this process is not the run, so its load is irrelevant
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


class WandbTracker:
    def __init__(self, into: str | None) -> None:
        # W&B reports its crashes over the network unless disabled before the import.
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
        wandb: Any = importlib.import_module("wandb")
        begun: Any = wandb.init(
            project=file_name(run.experiment), name=run.name, dir=self.where, tags=[run.backend],
            settings=wandb.Settings(**SETTINGS),
        )  # fmt: skip
        _time_is_the_axis(begun)
        return _WandbDraft(begun)


class _WandbDraft:
    """The run *begun* of W&B, in progress. It takes steps in order: points of an earlier step are left out."""

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


def _time_is_the_axis(begun: Any) -> None:
    begun.define_metric("time_s")
    begun.define_metric("*", step_metric="time_s")


def _write(run: Handover, folder: Path) -> Path:
    """Write *run* below *folder*; return its directory."""
    wandb: Any = importlib.import_module("wandb")
    begun: Any = wandb.init(
        project=file_name(run.experiment), group=run.group or None, name=run.name, id=run.id, dir=str(folder),
        config=dict(run.params), tags=[run.tags["backend"]], settings=wandb.Settings(**SETTINGS),
    )  # fmt: skip
    try:
        _time_is_the_axis(begun)
        for step, values in groupby(run.values, key=lambda value: value.step):
            begun.log({value.name: value.value for value in values}, step=step)
        begun.summary.update({f"summary/{name}": value for name, value in (run.summary | run.tags).items()})
        files = Path(begun.dir)
        for path in run.files:
            copy = files / "run" / path.name  # "config.yaml" is a reserved name there
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)
            begun.save(str(copy), base_path=str(files), policy="now")
    finally:
        begun.finish(exit_code=int(run.failed))
    return files.parent
