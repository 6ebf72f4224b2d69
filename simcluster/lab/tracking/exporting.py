"""Write a finished run or sweep to a tracker: MLflow, Weights & Biases or TensorBoard.

Existing content of a tracker is not changed, and each run is written once.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Protocol

from simcluster.errors import RunError, UsageError
from simcluster.lab.tracking.handover import Handover, Heading, RunDraft, hand_over
from simcluster.paths.given_path import given_path
from simcluster.process.installed import install_extra
from simcluster.runs.folder import RunFolder
from simcluster.runs.sweep.sweep_folder import SweepFolder
from simcluster.spelling import nearest


class TrackingFailed(RunError):
    """A tracker failed; the run itself is complete."""


class Tracker(Protocol):
    """An open tracker. *where* names its destination, and *look* says how to view it."""

    where: str
    look: str

    def write(self, run: Handover) -> bool:
        """Write *run*; return False, without changing anything, if the tracker already has it."""

    def draft(self, run: Heading) -> RunDraft:
        """Begin a run that has no result yet."""


KINDS = {
    "mlflow": ("to_mlflow:MlflowTracker", ("mlflow", "sqlalchemy", "alembic")),
    "wandb": ("to_wandb:WandbTracker", ("wandb",)),
    "tensorboard": ("to_tensorboard:TensorboardTracker", ("tensorboardX",)),
}
"""Name -> (MODULE:CLASS, packages that the tracker needs).

The extra of the same name installs these packages.
"""


@dataclass(frozen=True)
class ExportReport:
    """The result of an export: the number of runs *written*, and *where* they are.

    *known* is the number of runs that had been written before, *without* the number of points
    that left no run.
    """

    written: int
    known: int
    without: int
    where: str
    look: str

    def __str__(self) -> str:
        parts = [f"{self.written} {'run' if self.written == 1 else 'runs'} written to {self.where}"]
        parts += [f"{self.known} had been there before"] if self.known else []
        parts += [f"{self.without} left no run"] if self.without else []
        return f"{', '.join(parts)}\n  {self.look}"


def check(to: str, into: str | None = None, flag: str = "--to") -> None:
    """Raise UsageError if tracker *to* is unknown or not installed, or cannot write to *into*."""
    if to not in KINDS:
        raise UsageError(flag, repr(to), f"a tracker: {nearest(to, KINDS)}")
    missing = [name for name in KINDS[to][1] if util.find_spec(name) is None]
    if missing:
        found, expected = f"no package {', '.join(missing)}", f"it installed: {install_extra(to)}"
        raise UsageError(f"{flag} {to}", found, expected)
    if into is None or (to == "mlflow" and "://" in into):
        return
    if "://" in into:
        raise UsageError("--into", into, f"a folder for {to}, which is written to this machine")
    above = next((place for place in (Path(into), *Path(into).absolute().parents) if place.exists()), Path("/"))
    if not above.is_dir():
        raise UsageError("--into", f"{into}, but {above} is a file", "a folder, or a name that is free")


def export(source: RunFolder | SweepFolder, to: str, into: str | None = None) -> ExportReport:
    """Write *source* to the tracker named *to*, below the directory *into* (runs/TRACKER if None).

    Raise UsageError as `check` does, TrackingFailed if the tracker fails.
    """
    check(to, into)
    into = into if into is None or "://" in into else str(given_path(into, "--into"))
    points: Sequence[RunFolder | None] = [source] if isinstance(source, RunFolder) else source.runs
    group = () if isinstance(source, RunFolder) else (source.folder.absolute().name, tuple(source.keys))
    runs = {run.folder: run for run in points if run is not None}  # Equal points share a run.
    counts = {True: 0, False: 0}
    try:
        tracker = opened(to, into)
        for run in runs.values():
            counts[tracker.write(hand_over(run, *group))] += 1
    except (UsageError, RunError):
        raise
    except Exception as error:  # A tracker's package may raise anything.
        failure = TrackingFailed(f"{to} failed with {type(error).__name__}: {error}")
        failure.folder = str(source.folder)
        raise failure from error
    without = sum(run is None for run in points)
    return ExportReport(counts[True], counts[False], without, tracker.where, tracker.look)


def opened(to: str, into: str | None) -> Tracker:
    """Return the tracker named *to*, which writes below *into*."""
    module, _, name = KINDS[to][0].partition(":")
    tracker: Tracker = getattr(importlib.import_module(f"simcluster.lab.tracking.{module}"), name)(into)
    return tracker
