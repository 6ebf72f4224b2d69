"""What several commands take: `--json`, a topology file, names that a shell completes.

This file knows options. It must not know what a command does with them.
"""

from __future__ import annotations

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
