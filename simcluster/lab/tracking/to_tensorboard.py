"""Write runs as TensorBoard event files, one directory per run: INTO/EXPERIMENT/NAME/ID.

A run is written under a temporary name and then renamed, so each directory with a final name is
complete, and writing a run twice keeps one copy.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcluster.lab.tracking.handover import Handover, Heading, RunDraft, TrackedValue, file_name, key_name


class TensorboardTracker:
    """A tracker that writes TensorBoard event files."""

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
        _write_events(run, partial)
        partial.rename(folder)
        return True

    def draft(self, run: Heading) -> RunDraft:
        folder = self._into / file_name(run.experiment) / file_name(run.name) / f"running-{round(1000 * run.began_s)}"
        return _TensorboardDraft(folder, run.began_s)


class _TensorboardDraft:
    """The points of a run in *folder*; *began_s* is the run's time 0 in seconds since the epoch."""

    def __init__(self, folder: Path, began_s: float) -> None:
        self._folder, self._began_s = folder, began_s
        self.summaries: Any = importlib.import_module("tensorboardX.summary")
        writers: Any = importlib.import_module("tensorboardX.writer")
        folder.mkdir(parents=True)
        # Do not use tensorboardX's SummaryWriter: it also looks for a network service to send to.
        self._writer = writers.FileWriter(str(folder), max_queue=10_000)

    def put(self, summary: Any, step: int = 0, time_s: float = 0.0) -> None:
        self._writer.add_summary(summary, step, self._began_s + time_s)

    def add(self, values: Sequence[TrackedValue]) -> None:
        for name, step, time_s, value in values:
            self.put(self.summaries.scalar(key_name(name), value), step, time_s)
        self._writer.flush()

    def close(self, *, keep: bool) -> None:
        self._writer.close()
        if not keep:
            shutil.rmtree(self._folder)


def _write_events(run: Handover, folder: Path) -> None:
    events = _TensorboardDraft(folder, run.began_s)
    try:
        totals = {f"summary/{name}": value for name, value in run.summary.items()}
        # TensorBoard's table of runs shows the first few columns: put the swept keys there, or, for
        # a single run, everything except the nodes and links of the topology.
        if run.swept:
            columns: dict[str, Any] = {**run.swept, "seed": run.params["seed"]}
        else:
            rest = {name: value for name, value in run.params.items() if not name.startswith("topology.")}
            columns = {"topology": run.tags["topology"], **rest}
        for summary in events.summaries.hparams(columns, dict.fromkeys(map(key_name, totals), 0.0)):
            events.put(summary)
        for name, found in (("config", run.params), ("tags", run.tags)):
            lines = "\n".join(f"    {word}: {value}" for word, value in found.items())
            events.put(events.summaries.text(name, lines))
        ended_s = run.summary.get("elapsed_s", 0.0)
        events.add([*run.values, *(TrackedValue(name, run.last_step, ended_s, totals[name]) for name in totals)])
    finally:
        events.close(keep=True)
