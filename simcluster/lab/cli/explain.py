"""The command `simcluster explain`: explain an algorithm or a run in sentences."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated

from typer import Option

from simcluster.cli.terminal.options import Json, named_argument, names_of, overrides
from simcluster.errors import UsageError


def explain(
    what: Annotated[
        str,
        named_argument("ALGORITHM|RUN", "A name, file.py:function, or the folder of a run.", names_of("algorithms")),
    ],
    nodes: Annotated[
        int | None, Option(metavar="N", help="For an algorithm: the number of nodes to count bytes for; by default 4.")
    ] = None,
    sets: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="A setting of the algorithm. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain an algorithm or a run in sentences.

    For an algorithm: what it does, its phases, its traffic, its settings and the paper. For a run:
    where the time went, the slowest node and link, what would help most, and what to look at next.
    """
    from simcluster.lab.explain.algorithm import ExplainedAlgorithm, explain_algorithm
    from simcluster.lab.explain.run import ExplainedRun, explain_run

    found: ExplainedAlgorithm | ExplainedRun
    if Path(what).is_dir():
        if nodes is not None or sets:
            raise UsageError("--nodes" if nodes is not None else "--set", "a run", "it only for an algorithm")
        found = explain_run(Path(what))
    else:
        found = explain_algorithm(what, 4 if nodes is None else nodes, overrides(sets))
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, default=str))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    for sentence in found.sentences():
        print(textwrap.fill(sentence, max(40, width), subsequent_indent="  ", break_on_hyphens=False))
