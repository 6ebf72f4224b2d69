"""The commands `simcluster sweep` and `whatif`: run an experiment many times, and evaluate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from simcluster.cli.terminal import options
from simcluster.cli.terminal.complete import one_of, set_keys
from simcluster.cli.terminal.options import named, overrides
from simcluster.cli.terminal.show import progress_bar
from simcluster.cli.track import TrackAtEnd, tracked
from simcluster.process.loading import torch_loads

if TYPE_CHECKING:
    from simcluster.lab.sweeps import PlannedSweep

ESTIMATE_S = 7 * 86400
"""Window of finished points for the estimate of the remaining time: a point takes seconds to hours."""

SHOWN_ROWS = 20
SHOWN = ("status", "elapsed_s", "loss", "accuracy", "time_to_target_s", "bytes_sent", "staleness_mean")


def sweep(
    experiment: options.ExperimentOrArgument = None,
    script_args: options.ScriptArguments = None,
    script: options.Script = None,
    module: options.Module = None,
    sets: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUES",
            help="Sweep one key: a list (0,1,4,16), range(1,9), lin(0,1,5), log(10Mbps,2.5Gbps,6), uniform(0,1,8), "
            "loguniform(1,100,8). A single value is an override. Several make a grid.",
            autocompletion=set_keys,
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        Option(
            "--pair",
            metavar="KEY=VALUES",
            help="The same, except that all keys of --pair change together.",
            autocompletion=set_keys,
        ),
    ] = None,
    seeds: Annotated[int, Option(metavar="N", help="Seeds per combination, the same for all.")] = 1,
    seed: options.FirstSeed = None,
    backend: options.BackendName = None,
    topology: options.OtherTopology = None,
    algorithm: options.OtherAlgorithm = None,
    workload: options.OtherWorkload = None,
    compute: options.Compute = None,
    jobs: options.Jobs = None,
    engine: options.Engine = "local",
    targets: Annotated[
        list[str] | None,
        Option("--target", metavar="NAME=VALUE", help="accuracy=0.9: adds the time to reach it to the table."),
    ] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="The folder; by default runs/NAME-sweep.")] = None,
    report: Annotated[bool, Option(help="Write report.html (2 MB) and explorer.html.")] = True,
    more_options: options.BackendOptions = None,
    track: TrackAtEnd = None,
    as_json: options.Json = False,
) -> None:
    """Run an experiment for many values in parallel; write one table.

    Runs that the folder already holds are not repeated.
    """
    with torch_loads():
        from simcluster.lab.sweeps import sweep as run_sweep

    source = options.script_or_experiment(experiment, script_args or (), script, module)
    bar = progress_bar(Path(script or module or str(experiment)).stem, silent=as_json, estimate_s=ESTIMATE_S)
    with tracked(track, silent=as_json) as tracking, bar as progress:
        done = run_sweep(
            source, sets=sets or [], pairs=pairs or [], seeds=seeds, seed=seed, backend=backend, topology=topology,
            algorithm=algorithm, workload=workload, compute=compute, jobs=jobs, engine_name=engine,
            target=overrides(targets, "--target") or None, out=out, options=overrides(more_options, "--option"),
            report=report, progress=progress,
        )  # fmt: skip
        tracking.folders.append(done.folder)
    _print_notes(done, targets or ())
    if as_json:
        print(done.table.to_json(orient="records", indent=2))
    else:
        _print(done)
    if done.failed == len(done.points):
        raise typer.Exit(1)


def _print_notes(done: PlannedSweep, targets: Sequence[str]) -> None:
    from simcluster.lab.sweeps.run import TARGET_COLUMN

    if len(done.points) == 1:
        example = "--set workload.learning_rate=0.01,0.1, --pair, or --seeds 5"
        print(f"note: one run, since nothing is swept; {example} would be several", file=sys.stderr)
    if targets and done.table[TARGET_COLUMN].isna().all():
        print(f"note: no point reached {' and '.join(targets)}", file=sys.stderr)


def _print(done: PlannedSweep) -> None:
    from simcluster.lab.reports.sweeps.likely import likely

    frame = done.table
    measured = (name for name in SHOWN if name in frame and frame[name].notna().any())
    # Drop duplicates: the seed may be a swept column too.
    columns = list(dict.fromkeys(("seed", *done.columns, *measured)))
    print(frame[columns].head(SHOWN_ROWS).to_string(index=False))
    if len(frame) > SHOWN_ROWS:
        print(f"... and {len(frame) - SHOWN_ROWS} more")
    for sentence in likely(frame, [key for key in done.columns if key != "seed"]):
        print(sentence)
    if done.failed:
        first = frame[frame["status"] != "done"].iloc[0]
        print(f"{done.failed} of {len(frame)} points failed; the first, point {first['point']}: {first['error']}")
    doubtful = [(point, run) for point, run in enumerate(done.runs) if run is not None and run.warnings]
    if doubtful:
        point, run = doubtful[0]
        text = run.warnings[0]["text"]
        print(f"warning: {len(doubtful)} of {len(frame)} points are doubtful; the first, point {point}: {text}")
    for name in ("table.csv", "report.html", "explorer.html"):
        if (done.folder / name).is_file():
            print(f"  {done.folder / name}")


def whatif(
    experiment: options.ExperimentOrArgument = None,
    script_args: options.ScriptArguments = None,
    script: options.Script = None,
    module: options.Module = None,
    *,
    goal: Annotated[
        str,
        named(
            "GOAL",
            "What to reduce: time-to-accuracy=0.9, time-to-loss=0.3, step-time, run-time, energy or cost.",
            one_of("time-to-accuracy=", "time-to-loss=", "step-time", "run-time", "energy", "cost"),
        ),
    ],
    sets: options.Sets = None,
    seeds: Annotated[int, Option(metavar="N", help="The runs per change, which give the uncertainty.")] = 3,
    seed: options.FirstSeed = None,
    topology: options.OtherTopology = None,
    algorithm: options.OtherAlgorithm = None,
    workload: options.OtherWorkload = None,
    compute: options.Compute = None,
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

    Every link, device and setting of the experiment (or of a torch.distributed script's run) is
    changed, one at a time.
    """
    with torch_loads():
        from simcluster.lab.what_if.run import whatif as ask

    source = options.script_or_experiment(experiment, script_args or (), script, module)
    title = Path(script or module or str(experiment)).stem
    with progress_bar(title, silent=as_json, estimate_s=ESTIMATE_S) as progress:
        found = ask(
            source, goal, sets=sets or [], seeds=seeds, seed=seed, topology=topology, algorithm=algorithm,
            workload=workload, compute=compute, parts=parts, jobs=jobs, engine_name=engine, out=out, report=report,
            progress=progress,
        )  # fmt: skip
    if as_json:
        options.print_json(found.to_dict())
        return
    print(found.answer)
    for name in ("whatif.csv", "report.html"):
        if name != "report.html" or report:
            print(f"  {found.folder / name}")
