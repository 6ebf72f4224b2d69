"""The option `--track` of `run` and `sweep`: write to MLflow, Weights & Biases or TensorBoard."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from typer import Option

from simcluster.cli.terminal.help import OUTPUT
from simcluster.errors import Problem, RunError, UsageError, raise_all
from simcluster.wings import open_door

if TYPE_CHECKING:
    from simcluster.watching.telling import Follower

TRACKERS = "mlflow, wandb or tensorboard"


def _track(what: str) -> Any:
    words = f"{what}; the result is that of `simcluster export`. May be repeated."
    return Option("--track", metavar="NAME[=INTO]", rich_help_panel=OUTPUT, help=words)


Track = Annotated[list[str] | None, _track(f"Show the run in {TRACKERS} as it goes on")]
TrackAtEnd = Annotated[list[str] | None, _track(f"Write the points to {TRACKERS} when the sweep has ended")]


@dataclass
class Tracking:
    """The *folders* to track at the end, and the *follower* of a run in progress, if any."""

    follower: Follower | None
    folders: list[Path] = field(default_factory=list)


@contextmanager
def tracked(wanted: Sequence[str] | None, *, silent: bool) -> Iterator[Tracking]:
    """Yield a Tracking; at the end, write each of its folders to every tracker in *wanted*.

    Raise UsageError for an unavailable tracker before anything runs. A failed run is written, too,
    if it has a folder. A tracker that fails later causes a warning; the run continues.
    """
    trackers = _trackers(wanted)
    if not trackers:
        yield Tracking(None)
        return
    from simcluster.runs.folder import SUMMARY

    following = open_door("follow_run")(trackers)
    written = False
    tracking = Tracking(following)
    try:
        yield tracking
        written = True
    except RunError as error:
        if error.folder is not None and (Path(error.folder) / SUMMARY).is_file():
            tracking.folders = [Path(error.folder)]
            written = True
        raise
    finally:
        failed = following.end(keep=not written)
        for why in failed.values():
            print(f"warning: {why}; the run itself is unaffected", file=sys.stderr)
        left = [tracker for tracker in trackers if tracker[0] not in failed]
        for folder in tracking.folders if written else ():
            _write(folder, left, sys.stderr if silent else sys.stdout)


def _trackers(wanted: Sequence[str] | None) -> list[tuple[str, str | None]]:
    """Return (name, into) for each of *wanted*, NAME[=INTO].

    Raise UsageError, with all problems, if a tracker is unavailable.
    """
    if not wanted:
        return []
    check = open_door("check_tracker")
    trackers = [(name, into or None) for name, _, into in (text.partition("=") for text in wanted)]
    problems: list[Problem] = []
    for name, into in trackers:
        try:
            check(name, into, "--track")
        except UsageError as error:
            problems += error.problems
    raise_all(problems)
    return trackers


def _write(folder: Path, trackers: list[tuple[str, str | None]], said_to: TextIO) -> None:
    """Write *folder* to *trackers*; warn of each that fails, and remove it from *trackers*."""
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.sweep.sweep_folder import is_sweep

    found = load_sweep(folder) if is_sweep(folder) else load_run(folder)
    for name, into in list(trackers):
        try:
            print(found.track(name, into), file=said_to)
        except RunError as failure:
            print(f"warning: {failure}; the run itself is complete", file=sys.stderr)
            trackers.remove((name, into))
