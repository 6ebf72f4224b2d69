"""Runs as TensorBoard event files, one directory each: INTO/EXPERIMENT/NAME/ID.

A run is written under another name and then renamed, so every directory there is complete, and writing a run twice
keeps one.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcluster.lab.tracking.handover import Handover, Heading, RunDraft, TrackedValue, file_name, key_name


class TensorboardTracker:
    def __init__(self, into: str | None) -> None:
        self._into = Path(into or "runs/tensorboard")
        self.where = str(self._into)
        self.look = f"tensorboard --logdir {self.where}"

    def write(self, run: Handover) -> bool:
        folder = self._into / file_name(run.place) / file_name(run.name) / run.id[:8]
        if folder.is_dir():
            return False
        partial = folder.with_name(f".partial-{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write_events(run, partial)
        partial.rename(folder)
        return True

    def draft(self, run: Heading) -> RunDraft:
        folder = self._into / file_name(run.experiment) / file_name(run.name) / f"running-{round(1000 * run.began_s)}"
        return _TensorboardDraft(folder, run.began_s)


class _TensorboardDraft:
    """The points of a run in progress, in *folder*."""

    def __init__(self, folder: Path, began_s: float) -> None:
        self._folder, self._began_s = folder, began_s
        self._summaries: Any = importlib.import_module("tensorboardX.summary")
        writers: Any = importlib.import_module("tensorboardX.writer")
        folder.mkdir(parents=True)
        self._writer = writers.FileWriter(str(folder))

    def add(self, values: Sequence[TrackedValue]) -> None:
        for name, step, time_s, value in values:
            self._writer.add_summary(self._summaries.scalar(key_name(name), value), step, self._began_s + time_s)
        self._writer.flush()

    def close(self, *, keep: bool) -> None:
        self._writer.close()
        if not keep:
            shutil.rmtree(self._folder)


def _write_events(run: Handover, folder: Path) -> None:
    summaries: Any = importlib.import_module("tensorboardX.summary")
    writers: Any = importlib.import_module("tensorboardX.writer")
    # Not its SummaryWriter, which looks for a service on the network to send the same data to.
    writer = writers.FileWriter(str(folder), max_queue=10_000)
    try:
        totals = {f"summary/{name}": value for name, value in run.summary.items()}
        # The columns of its table of runs, which shows the first few: the swept keys, else all but the topology.
        if run.swept:
            columns: dict[str, Any] = {**run.swept, "seed": run.params["seed"]}
        else:
            rest = {name: value for name, value in run.params.items() if not name.startswith("topology.")}
            columns = {"topology": run.tags["topology"], **rest}
        for summary in summaries.hparams(columns, dict.fromkeys(map(key_name, totals), 0.0)):
            writer.add_summary(summary, 0, run.began_s)
        for name, found in (("config", run.params), ("tags", run.tags)):
            lines = "\n".join(f"    {word}: {value}" for word, value in found.items())
            writer.add_summary(summaries.text(name, lines), 0, run.began_s)
        for name, step, time_s, value in run.values:
            writer.add_summary(summaries.scalar(key_name(name), value), step, run.began_s + time_s)
        ended_s = run.began_s + run.summary.get("elapsed_s", 0.0)
        for name, value in totals.items():
            writer.add_summary(summaries.scalar(key_name(name), value), run.last_step, ended_s)
    finally:
        writer.close()
