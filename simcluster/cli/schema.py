"""The command `simcluster schema`: the JSON schema of topology or experiment files, for editors."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from simcluster.cli.complete import one_of
from simcluster.documents.shipped import SCHEMAS, schema_text
from simcluster.errors import Problem, UsageError, nearest


def schema(
    kind: Annotated[str, Argument(metavar="KIND", help="topology or experiment.", autocompletion=one_of(*SCHEMAS))],
) -> None:
    """Print the JSON schema of topology or experiment files.

    An editor completes and checks keys with it.
    """
    if kind not in SCHEMAS:
        raise UsageError(Problem("kind", repr(kind), nearest(kind, SCHEMAS)))
    print(schema_text(kind), end="")
