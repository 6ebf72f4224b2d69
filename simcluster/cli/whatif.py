"""The command `simcluster whatif`: an experiment and a goal in; its bottleneck and what to buy, in sentences, out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simcluster.cli.options import ExperimentFile, Json, OtherAlgorithm, OtherTopology, Sets
from simcluster.process import terminal

if TYPE_CHECKING:
    from simcluster.what_if.run import Progress


def whatif(
    experiment: ExperimentFile,
    goal: Annotated[
        str,
        typer.Option(
            metavar="GOAL",
            help="What to reduce: time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost.",
        ),
    ],
    sets: Sets = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="The runs per change, which give the uncertainty.")] = 3,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The first seed.")] = None,
    topology: OtherTopology = None,
    algorithm: OtherAlgorithm = None,
    parts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Purchasable parts with prices, instead of the shipped list.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Parallel processes; by default one per core.")] = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="local, dask, dask=ADDRESS or slurm.")] = "local",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder; by default runs/NAME-whatif.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html (5 MB).")] = True,
    as_json: Json = False,
) -> None:
    """Find an experiment's bottleneck, and what to buy.

    Every link, device and setting is changed, one at a time.
    """
    from simcluster.what_if import whatif as ask

    with _bar(Path(experiment).stem, silent=as_json) as progress:
        found = ask(
            experiment, goal, sets=sets or [], seeds=seeds, seed=seed, topology=topology, algorithm=algorithm,
            parts=parts, jobs=jobs, engine_name=engine, out=out, report=report, progress=progress,
        )  # fmt: skip
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
        return
    print(found.answer)
    for name in ("whatif.csv", "report.html"):
        if name != "report.html" or report:
            print(f"  {found.folder / name}")


@contextmanager
def _bar(title: str, *, silent: bool) -> Iterator[Progress | None]:
    """Yield a callback for a bar on standard error, or None unless that is a terminal. The total grows."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with terminal.drawn(
        Progress(*columns, console=terminal.console(), transient=True, speed_estimate_period=7 * 86400)
    ) as bar:
        task = bar.add_task(terminal.title(title), total=None)

        def progress(done: int, total: int, before: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress
