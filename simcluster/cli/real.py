"""The options of `run` and `resume` that are for real nodes: where they meet, how they are started, who may join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simcluster.errors import Problem, UsageError

Ssh = Annotated[
    bool, typer.Option(help="sockets: start nodes that have `ssh` in the topology by ssh; else they are started here.")
]
SshConfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="sockets: a configuration for ssh in place of your own (its -F).")
]
SshOptions = Annotated[
    list[str] | None,
    typer.Option("--ssh-option", metavar="KEY=VALUE", help="sockets: one more -o for ssh. May be given many times."),
]
Tmux = Annotated[bool, typer.Option("--tmux", help="sockets: show each node in a pane of a tmux session.")]
Processes = Annotated[
    int | None,
    typer.Option("--nproc-per-node", metavar="N", help="So many processes, each a rank, on every node."),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="How often a run that lost a node begins again, from its last checkpoint or else from the start.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|URL",
        help="sockets: tell how far the run is, at HOST:PORT, or to the coordinator at https://HOST:PORT.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="sockets: the coordinator's token; any file of `simcluster key` will do."),
]
TlsFolder = Annotated[
    Path | None,
    typer.Option("--tls", metavar="FOLDER", help="sockets: encrypt, with the files of `simcluster keys init`."),
]
PlainHttp = Annotated[
    bool,
    typer.Option("--plain-http", help="sockets: let the coordinator's token cross a network unencrypted."),
]


def real_options(backend: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Those of *given* that say something, as options of the backend. Raises UsageError where they have no meaning.

    The simulator begins again, too, so that what is planned can be seen there first.
    """
    said = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None and value is not (name == "ssh") and value != []
    }
    meaningless = {name: value for name, value in said.items() if name != "max_restarts" or backend != "sim"}
    if meaningless and backend not in ("sockets", None):
        written = {"ssh": "--no-ssh", "ssh_options": "--ssh-option"}
        raise UsageError(
            [
                Problem(
                    written.get(name, f"--{name.replace('_', '-')}"), f"{value} works only with --backend sockets", ""
                )
                for name, value in meaningless.items()
            ]
        )
    return said
