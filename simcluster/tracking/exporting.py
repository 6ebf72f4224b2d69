"""Writes a finished run or sweep to a tracker, by the tracker's name.

Whatever a tracker has already stays as it is: each run is there once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any, Protocol

from simcluster.errors import Problem, RunError, UsageError, nearest
from simcluster.paths.given_path import given_path
from simcluster.runs.folder import RunFolder
from simcluster.runs.sweep_folder import SweepFolder
from simcluster.tracking.handover import Handover, hand_over


class TrackingFailed(RunError):
    """A tracker refused what it was given; the run itself is complete."""


class Tracker(Protocol):
    """An open tracker. *where* is what it writes to, *look* how to see it."""

    where: str
    look: str

    def write(self, run: Handover) -> bool:
        """Whether *run* was written: False if it had been before, and then nothing changes."""


@dataclass(frozen=True)
class Kind:
    """A tracker: the *module* here that has its `open_tracker`, the packages that it *needs*, the *extra* with them."""

    module: str
    needs: tuple[str, ...]
    extra: str


KINDS = {
    "mlflow": Kind("to_mlflow", ("mlflow", "sqlalchemy", "alembic"), "mlflow"),
    "wandb": Kind("to_wandb", ("wandb",), "wandb"),
    "tensorboard": Kind("to_tensorboard", ("tensorboardX",), "tensorboard"),
}


@dataclass(frozen=True)
class Exported:
    """What came of it: runs *written* now, *known* before, points *without* a run; *where*, and how to *look*."""

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
    """Raises UsageError for a tracker that nobody knows, that is not installed, or that cannot be *into* there."""
    kind = KINDS.get(to)
    if kind is None:
        raise UsageError(Problem(flag, repr(to), f"a tracker: {nearest(to, KINDS)}"))
    missing = [name for name in kind.needs if util.find_spec(name) is None]
    if missing:
        install = f"pip install 'simcluster[{kind.extra}]'"
        raise UsageError(Problem(f"{flag} {to}", f"no package {', '.join(missing)}", f"it installed: {install}"))
    if into is None or (to == "mlflow" and "://" in into):
        return
    if "://" in into:
        raise UsageError(Problem("--into", into, f"a folder for {to}, which is written to this machine"))
    above = next((place for place in (Path(into), *Path(into).absolute().parents) if place.exists()), Path("/"))
    if not above.is_dir():
        raise UsageError(Problem("--into", f"{into}, but {above} is a file", "a folder, or a name that is free"))


def export(source: RunFolder | SweepFolder, to: str, into: str | None = None) -> Exported:
    """Writes *source* to the tracker called *to*, below the folder *into*; by default runs/TRACKER.

    Raises UsageError as `check` does, TrackingFailed if the tracker fails.
    """
    check(to, into)
    into = into if into is None or "://" in into else str(given_path(into, "--into"))
    tracker, counts = None, {True: 0, False: 0}
    try:
        tracker = _open(to, into)
        for run in _handed_over(source):
            counts[tracker.write(run)] += 1
    except (UsageError, RunError):
        raise
    except Exception as error:  # whatever a package of others may raise, the run is none the worse for it
        failure = TrackingFailed(f"{to} failed with {type(error).__name__}: {error}")
        failure.folder = str(source.folder)
        raise failure from error
    without = sum(run is None for run in source.runs) if isinstance(source, SweepFolder) else 0
    return Exported(counts[True], counts[False], without, tracker.where, tracker.look)


def _open(to: str, into: str | None) -> Tracker:
    module: Any = importlib.import_module(f"simcluster.tracking.{KINDS[to].module}")
    tracker: Tracker = module.open_tracker(into)
    return tracker


def _handed_over(source: RunFolder | SweepFolder) -> Iterator[Handover]:
    """Each run once: points of a sweep that are equal share theirs."""
    if isinstance(source, RunFolder):
        yield hand_over(source)
        return
    seen = set()
    for run in source.runs:
        if run is not None and run.folder not in seen:
            seen.add(run.folder)
            yield hand_over(run, source.folder.absolute().name, tuple(source.keys))
