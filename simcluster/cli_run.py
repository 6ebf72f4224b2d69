"""The command `simcluster run`: an experiment in, a run folder out.

This file knows the command's options and what it prints. It must not know how anything is run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from simcluster.cli_options import (
    BackendName,
    BackendOptions,
    ExperimentFile,
    Json,
    KeyFile,
    OtherAlgorithm,
    OtherTopology,
    Rendezvous,
    Sets,
    meeting,
)
from simcluster.cli_sets import overrides
from simcluster.cli_show import print_summary, progress_bar
from simcluster.errors import Problem, RunError, UsageError


def run(
    experiment: ExperimentFile,
    backend: BackendName = None,
    topology: OtherTopology = None,
    algorithm: OtherAlgorithm = None,
    sets: Sets = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of everything random.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default below runs/.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html (5 MB).")] = True,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    more_options: BackendOptions = None,
    as_json: Json = False,
) -> None:
    """Run an experiment on a backend and write its run folder."""
    options = _options(backend, meeting(rendezvous, key_file), more_options)
    with progress_bar(f"{Path(experiment).stem}{f' on {backend}' if backend else ''}", silent=as_json) as progress:
        try:
            from simcluster.experiment import run as run_experiment

            finished = run_experiment(
                experiment, backend=backend, topology=topology, algorithm=algorithm, overrides=overrides(sets or []),
                seed=seed, out=out, options=options, report=report, progress=progress,
            )  # fmt: skip
        except RunError as error:
            if as_json and error.folder is not None and (summary := Path(error.folder) / "summary.json").is_file():
                print(summary.read_text(), end="")
            raise
    if as_json:
        print(json.dumps(finished.summary, indent=2))
    else:
        print_summary(finished)


def _options(backend: str | None, met: dict[str, Any], more: list[str] | None) -> dict[str, Any]:
    if met and backend not in ("sockets", None):
        raise UsageError(
            [
                Problem(f"--{name.replace('_', '-')}", value, "this only with --backend sockets")
                for name, value in met.items()
            ]
        )
    return overrides(more or [], "--option") | met
