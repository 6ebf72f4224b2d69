"""The command `simcluster whatif`: an experiment and a goal in; its bottleneck and what to buy, in sentences, out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.cli import options
from simcluster.cli.show import progress_bar
from simcluster.cli.sweep import ESTIMATE_S


def whatif(
    experiment: options.ExperimentFile,
    goal: Annotated[
        str,
        Option(
            metavar="GOAL",
            help="What to reduce: time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost.",
        ),
    ],
    sets: options.Sets = None,
    seeds: Annotated[int, Option(metavar="N", help="The runs per change, which give the uncertainty.")] = 3,
    seed: options.FirstSeed = None,
    topology: options.OtherTopology = None,
    algorithm: options.OtherAlgorithm = None,
    parts: Annotated[
        Path | None, Option(metavar="FILE", help="Purchasable parts with prices, instead of the shipped list.")
    ] = None,
    jobs: options.Jobs = None,
    engine: options.Engine = "local",
    out: Annotated[Path | None, Option(metavar="DIR", help="The folder; by default runs/NAME-whatif.")] = None,
    report: options.Report = True,
    as_json: options.Json = False,
) -> None:
    """Find an experiment's bottleneck, and what to buy.

    Every link, device and setting is changed, one at a time.
    """
    from simcluster.what_if import whatif as ask

    with progress_bar(Path(experiment).stem, silent=as_json, estimate_s=ESTIMATE_S) as progress:
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
