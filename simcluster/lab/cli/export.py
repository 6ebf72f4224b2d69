"""The command `simcluster export`: write runs and sweeps to MLflow, W&B or TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.cli.track import TRACKERS
from simcluster.paths.last_run import each_once


def export(
    sources: Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs or sweeps.")],
    to: Annotated[str, Option("--to", metavar="NAME", help=f"{TRACKERS}.")],
    into: Annotated[
        str | None, Option(metavar="DIR", help="The tracker's folder, by default runs/NAME; for mlflow also a URI.")
    ] = None,
) -> None:
    """Write runs and sweeps to a tracker.

    Runs that the tracker already has are skipped.
    """
    from simcluster.lab.tracking import check
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.sweep.sweep_folder import is_sweep

    check(to, into)
    found = [load_sweep(source) if is_sweep(source) else load_run(source) for source in each_once(sources)]
    for one in found:
        print(one.track(to, into))
