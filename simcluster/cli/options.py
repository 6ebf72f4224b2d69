"""Arguments of commands: names that a shell completes, and the options of more than one command or of a long one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def names_of(kind: str) -> Any:
    def complete(incomplete: str) -> list[str]:
        from simcluster.catalogue import files, names

        found = [name for name in names(kind) if name.startswith(incomplete)]
        return found + (files(incomplete) if kind in ("experiments", "topologies") else [])

    return complete


TopologyFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A topology file or name.", autocompletion=names_of("topologies"))
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one key, e.g. algorithm.pull_interval=4 or topology.links.pi5-mini1.bandwidth='100 Mbps'. "
        "May be given many times.",
    ),
]
Rendezvous = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="sockets: wait here for nodes started by hand with `simcluster node`."),
]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="sockets: the shared key; required off loopback.")]

ExperimentFile = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="An experiment file, or the name of a shipped one.",
        autocompletion=names_of("experiments"),
    ),
]
BackendName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="sim (the default), sockets or torch.", autocompletion=names_of("backends")),
]
OtherTopology = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A topology file or name in place of the experiment's.",
        autocompletion=names_of("topologies"),
    ),
]
OtherAlgorithm = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="An algorithm, with its defaults, in place of the experiment's.",
        autocompletion=names_of("algorithms"),
    ),
]
BackendOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A setting of the backend itself, e.g. threads=2 of sim: to compute in two; limit_s=600 or loop_s=900 "
        "of sockets: when to give a run up; portable=true: the same bits on unlike x86-64 CPUs. "
        "May be given many times.",
    ),
]


def meeting(rendezvous: str | None, key_file: Path | None) -> dict[str, Any]:
    """The backend's options that say where and by which key nodes meet, as far as they are given."""
    given = {"rendezvous": rendezvous, "key_file": str(key_file) if key_file else None}
    return {name: value for name, value in given.items() if value is not None}
