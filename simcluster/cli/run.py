"""The command `simcluster run`: an experiment in, a run folder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcluster.cli.options import (
    BackendName,
    BackendOptions,
    Coordinator,
    ExperimentFile,
    Json,
    KeyFile,
    OtherAlgorithm,
    OtherTopology,
    PlainHttp,
    Processes,
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
from simcluster.cli.track import Track, tracked
from simcluster.cli.watch import Watch, watching


def run(
    experiment: ExperimentFile,
    backend: BackendName = None,
    topology: OtherTopology = None,
    algorithm: OtherAlgorithm = None,
    sets: Sets = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The seed of all randomness.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder; by default in runs/.")] = None,
    report: Annotated[bool, typer.Option(help="Write report.html (5 MB).")] = True,
    rendezvous: Rendezvous = None,
    key_file: KeyFile = None,
    ssh: Ssh = True,
    ssh_config: SshConfig = None,
    ssh_options: SshOptions = None,
    tmux: Tmux = False,
    nproc_per_node: Processes = None,
    max_restarts: Restarts = None,
    coordinator: Coordinator = None,
    token_file: TokenFile = None,
    tls: TlsFolder = None,
    plain_http: PlainHttp = False,
    more_options: BackendOptions = None,
    track: Track = None,
    watch: Watch = False,
    as_json: Json = False,
) -> None:
    """Run an experiment on a backend and write its run folder."""
    given = meeting(rendezvous, key_file) | {
        "ssh": ssh, "ssh_config": ssh_config, "ssh_options": ssh_options, "tmux": tmux, "max_restarts": max_restarts,
        "coordinator": coordinator, "token_file": token_file, "tls": tls,
        "plain_http": plain_http,
    }  # fmt: skip
    options = overrides(more_options or [], "--option") | real_options(backend, given)
    changed = overrides(sets or [])
    if nproc_per_node is not None:
        changed["topology.launch.nproc_per_node"] = nproc_per_node
    title = f"{Path(experiment).stem}{f' on {backend}' if backend else ''}"
    with (
        warnings_told(),
        tracked(track, silent=as_json) as folders,
        watching(silent=as_json or not watch) as watcher,
        progress_bar(title, silent=as_json or watch) as progress,
        failure_printed(as_json=as_json),
    ):
        from simcluster.experiment import run as run_experiment

        finished = run_experiment(
            experiment, backend=backend, topology=topology, algorithm=algorithm, overrides=changed,
            seed=seed, out=out, options=options, report=report, progress=progress,
            on_output=None if as_json else print_line, watcher=watcher,
        )  # fmt: skip
        folders.append(finished.folder)
    print_finished(finished, as_json=as_json)
