"""The commands `simcluster node` and `simcluster key`: what somebody types at a real node, or what ssh types there.

This file knows the commands' options and what they print. It must not know how a node joins or lives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcluster.errors import Problem, UsageError


def node(
    name: Annotated[str, typer.Argument(metavar="NAME", help="This node's name in the topology file.")],
    join: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where `simcluster run --rendezvous` waits.")
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The shared key, the same file on every machine.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the other nodes reach this one; by default a free port on loopback.",
        ),
    ] = None,
    launched: Annotated[
        bool, typer.Option("--launched", hidden=True, help="For launchers: take orders on standard input.")
    ] = False,
) -> None:
    """Join a run on the sockets backend by hand, from this machine."""
    from simcluster.experiment.join import join_run, serve_launcher

    if launched:
        raise typer.Exit(serve_launcher())
    missing = {"--join": join, "--key-file": key_file}
    if problems := [Problem(option, "nothing", "it") for option, value in missing.items() if value is None]:
        raise UsageError(problems)
    assert join is not None
    assert key_file is not None
    raise typer.Exit(join_run(name, join, key_file, listen))


def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the new key.")]) -> None:
    """Write a new shared key for runs across machines (mode 0600)."""
    from simcluster.experiment.join import write_key

    print(write_key(file))
