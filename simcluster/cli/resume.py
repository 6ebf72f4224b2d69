"""The command `simcluster resume`: a run's folder in, the rest of that run out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from simcluster.cli.options import (
    BackendName,
    BackendOptions,
    Coordinator,
    Json,
    KeyFile,
    OtherTopology,
    PlainHttp,
    Rendezvous,
    Restarts,
    Sets,
    Ssh,
    SshConfig,
    SshOptions,
    TlsFolder,
    Tmux,
    TokenFile,
    meeting,
    overrides,
    real_options,
)
from simcluster.cli.show import failure_printed, print_finished, print_line, progress_bar, warnings_told
from simcluster.cli.watch import Watch, watching


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run with checkpoints.")],
    backend: BackendName = None,
    topology: OtherTopology = None,
    sets: Sets = None,
    step: Annotated[int | None, typer.Option(metavar="N", help="The checkpoint's step; by default the last.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default RUN itself.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html (5 MB).")] = True,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    ssh: Ssh = True,
    ssh_config: SshConfig = None,
    ssh_options: SshOptions = None,
    tmux: Tmux = False,
    max_restarts: Restarts = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    tls: TlsFolder = None,
    plain_http: PlainHttp = False,
    more_options: BackendOptions = None,
    watch: Watch = False,
    show: Annotated[bool, typer.Option("--list", help="Only list the checkpoints.")] = False,
    as_json: Json = False,
) -> None:
    """Resume a run from its last complete checkpoint."""
    given = meeting(rendezvous, key_file) | {
        "ssh": ssh, "ssh_config": ssh_config, "ssh_options": ssh_options, "tmux": tmux, "max_restarts": max_restarts,
        "coordinator": coordinator, "token_file": token_file, "tls": tls,
        "plain_http": plain_http,
    }  # fmt: skip
    options = overrides(more_options or [], "--option") | real_options(backend, given)
    with warnings_told():
        if show:
            _list(run, as_json)
            return
        with (
            watching(silent=as_json or not watch) as watcher,
            progress_bar(f"{run.name}, resumed", silent=as_json or watch) as progress,
            failure_printed(as_json=as_json),
        ):
            from simcluster.experiment.resume import resume as resume_run

            finished = resume_run(
                run, step=step, backend=backend, topology=topology, overrides=overrides(sets or []), out=out,
                options=options, report=report, progress=progress, on_output=None if as_json else print_line,
                watcher=watcher,
            )  # fmt: skip
    print_finished(finished, as_json=as_json)


def _list(run: Path, as_json: bool) -> None:
    from simcluster.checkpoints.store import checkpoints

    found = checkpoints(run)
    rows: list[dict[str, Any]] = [
        {"step": one.step, "time_s": one.manifest.time_s, "ranks": one.manifest.world_size, **one.judged}
        | {"path": str(one.path)}
        for one in found
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        judged = "".join(f", {name} {row[name]:.4g}" for name in ("loss", "accuracy") if name in row)
        print(f"step {row['step']}, {row['time_s']:.4g} s, {row['ranks']} ranks{judged}: {row['path']}")
    if not rows:
        print(f"no checkpoints in {run}")
