"""The command `simcluster sweep`: an experiment and swept values in, a folder of runs and one table out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simcluster.cli.options import (
    BackendName,
    BackendOptions,
    ExperimentFile,
    Json,
    OtherAlgorithm,
    OtherTopology,
    overrides,
)
from simcluster.cli.track import Track, tracked
from simcluster.process import terminal

if TYPE_CHECKING:
    from simcluster.sweeps import PlannedSweep
    from simcluster.sweeps.run import Progress

SHOWN_ROWS = 20
SHOWN = ("status", "elapsed_s", "loss", "accuracy", "time_to_target_s", "bytes_sent", "staleness_mean")

Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUES",
        help="Sweep one key: a list (0,1,4,16), range(1,9), lin(0,1,5), log(10Mbps,2.5Gbps,6), uniform(0,1,8), "
        "loguniform(1,100,8). A single value is an override. Several make a grid.",
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--pair", metavar="KEY=VALUES", help="The same, except that all keys of --pair change together."),
]


def sweep(
    experiment: ExperimentFile,
    sets: Values = None,
    pairs: Pairs = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds per combination, the same for all.")] = 1,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The first seed.")] = None,
    backend: BackendName = None,
    topology: OtherTopology = None,
    algorithm: OtherAlgorithm = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Parallel processes; by default one per core.")] = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="local, dask, dask=ADDRESS or slurm.")] = "local",
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="NAME=VALUE", help="accuracy=0.9: adds the time to reach it to the table."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder; by default runs/NAME-sweep.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html and explorer.html (5 MB each).")] = True,
    more_options: BackendOptions = None,
    track: Track = None,
    as_json: Json = False,
) -> None:
    """Run an experiment for many values in parallel; write one table.

    Runs that the folder already holds are not repeated.
    """
    from simcluster.sweeps import sweep as run_sweep

    silent = as_json
    with tracked(track, silent=silent) as folders, _bar(Path(experiment).stem, silent=silent) as progress:
        done = run_sweep(
            experiment, sets=sets or [], pairs=pairs or [], seeds=seeds, seed=seed, backend=backend, topology=topology,
            algorithm=algorithm, jobs=jobs, engine_name=engine, target=overrides(targets or [], "--target") or None,
            out=out, options=overrides(more_options or [], "--option"), report=report, progress=progress,
        )  # fmt: skip
        folders.append(done.folder)
    if as_json:
        print(done.table.to_json(orient="records", indent=2))
    else:
        _print(done)
    if done.failed == len(done.points):
        raise typer.Exit(1)


def _print(done: PlannedSweep) -> None:
    frame = done.table
    columns = ["seed", *done.points[0].values, *(name for name in SHOWN if name in frame and frame[name].notna().any())]
    print(frame[columns].head(SHOWN_ROWS).to_string(index=False))
    if len(frame) > SHOWN_ROWS:
        print(f"... and {len(frame) - SHOWN_ROWS} more")
    if done.failed:
        first = frame[frame["status"] != "done"].iloc[0]
        print(f"{done.failed} of {len(frame)} points failed; the first, point {first['point']}: {first['error']}")
    for name in ("table.csv", "report.html", "explorer.html"):
        if (done.folder / name).is_file():
            print(f"  {done.folder / name}")


@contextmanager
def _bar(title: str, *, silent: bool) -> Iterator[Progress | None]:
    """Yield a callback for a bar with the time left on standard error; None unless that is a terminal."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Points take seconds to hours: the time left is estimated from all points run now, not from earlier ones.
    with terminal.drawn(
        Progress(*columns, console=terminal.console(), transient=True, speed_estimate_period=7 * 86400)
    ) as bar:
        tasks: list[int] = []

        def progress(done: int, total: int, before: int) -> None:
            if not tasks:
                tasks.append(bar.add_task(terminal.title(title), total=total, completed=before))
            else:
                bar.update(bar.task_ids[0], completed=done)

        yield progress
