"""The command `simcluster export`, and `--track` of `run` and `sweep`: to MLflow, Weights & Biases, TensorBoard."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.errors import Problem, RunError, UsageError

TRACKERS = "mlflow, wandb or tensorboard"

Track = Annotated[
    list[str] | None,
    Option(
        "--track",
        metavar="NAME[=INTO]",
        help=f"Export the result to {TRACKERS}, as `simcluster export` does. May be repeated.",
    ),
]


def export(
    sources: Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs or sweeps.")],
    to: Annotated[str, Option("--to", metavar="NAME", help=f"{TRACKERS}.")],
    into: Annotated[
        str | None, Option(metavar="DIR", help="The tracker's folder, by default runs/NAME; for mlflow also a URI.")
    ] = None,
) -> None:
    """Write runs and sweeps to a tracker.

    Those already written there are skipped.
    """
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.sweep_folder import is_sweep
    from simcluster.tracking import check

    check(to, into)
    found = [load_sweep(source) if is_sweep(source) else load_run(source) for source in sources]
    for one in found:
        print(one.track(to, into))


@contextmanager
def tracked(wanted: Sequence[str] | None, *, silent: bool) -> Iterator[list[Path]]:
    """Yield a list of folders; at the end, write each to every tracker that is *wanted*.

    An unavailable tracker is reported before anything runs. A failed run is written, too, if it has a folder.
    """
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.folder import SUMMARY
    from simcluster.runs.sweep_folder import is_sweep
    from simcluster.tracking import check

    trackers = [(name, into or None) for name, _, into in (text.partition("=") for text in wanted or [])]
    problems: list[Problem] = []
    for name, into in trackers:
        try:
            check(name, into, "--track")
        except UsageError as error:
            problems += error.problems
    if problems:
        raise UsageError(problems)
    folders: list[Path] = []

    def write(folder: Path) -> None:
        found = load_sweep(folder) if is_sweep(folder) else load_run(folder)
        for name, into in trackers:
            print(found.track(name, into), file=sys.stderr if silent else sys.stdout)

    try:
        yield folders
    except RunError as error:
        if error.folder is not None and (Path(error.folder) / SUMMARY).is_file():
            try:
                write(Path(error.folder))
            except RunError as failure:
                error.add_note(str(failure))
        raise
    for folder in folders:
        write(folder)
