"""The command `simcluster export`: write runs and sweeps to a tracker, or a trained GPT for transformers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from simcluster.cli.track import TRACKERS
from simcluster.errors import UsageError
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import write_whole
from simcluster.paths.last_run import each_once, last_run
from simcluster.spelling import nearest


def export(
    sources: Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs or sweeps.")],
    to: Annotated[str, Option("--to", metavar="NAME", help=f"{TRACKERS}; or transformers.")],
    into: Annotated[
        str | None, Option(metavar="DIR", help="The folder, for trackers by default runs/NAME; for mlflow also a URI.")
    ] = None,
) -> None:
    """Write runs and sweeps to a tracker, or a trained GPT for transformers.

    Runs that the tracker already has are skipped. `--to transformers --into DIR` writes the final
    weights of one run of the workload gpt and its tokenizer as a new folder, which `from_pretrained`
    of transformers loads.
    """
    from simcluster.lab.tracking import check
    from simcluster.lab.tracking.exporting import KINDS
    from simcluster.results import load_run, load_sweep
    from simcluster.runs.sweep.sweep_folder import is_sweep

    if to == "transformers":
        _to_transformers(sources, into)
        return
    if to not in KINDS:
        raise UsageError("--to", repr(to), nearest(to, [*KINDS, "transformers"]))
    check(to, into)
    found = [load_sweep(source) if is_sweep(source) else load_run(source) for source in each_once(sources)]
    for one in found:
        print(one.track(to, into))


def _to_transformers(sources: list[Path], into: str | None) -> None:
    from simcluster.results import load_run
    from simcluster.workloads.models.gpt_folder import gpt2_folder

    if len(sources) != 1 or into is None:
        found = f"{len(sources)} runs" if into is not None else "no --into"
        raise UsageError("--to transformers", found, "one run, and --into DIR")
    folder = given_path(into, "--into")
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError("--into", f"{folder}, which is not empty", "a new or an empty folder")
    run = load_run(last_run(sources[0]))
    weights = run.weights()
    files = gpt2_folder(weights, run.config.get("workload") or {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder, name, content=content)
    except OSError as error:
        raise UsageError("--into", f"cannot write {folder}: {error.strerror}", "another folder") from None
    print(f"{folder}: transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r})")
