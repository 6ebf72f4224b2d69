"""The commands `simcluster new`, which writes a project that runs, and `simcluster schema`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument

from simcluster.cli.terminal.complete import one_of
from simcluster.cli.terminal.options import named, named_argument
from simcluster.documents.shipped import SCHEMAS, schema_text, shipped_folder
from simcluster.errors import UsageError
from simcluster.paths.given_path import given_path
from simcluster.spelling import nearest

EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "own-algorithm": {
        "local_sgd.py": "experiments/own/local_sgd.py",
        "topology.yaml": "topologies/thunderbolt-mesh-4.yaml",
    },
    "own-model": {"spirals.py": "experiments/own/spirals.py", "topology.yaml": "topologies/thunderbolt-mesh-4.yaml"},
    "shelf": {},
}
"""Example -> {file of the project: shipped file that it copies}.

The files in experiments/new/EXAMPLE are copied, too.
"""

_REFERENCE = re.compile(r"(# yaml-language-server: \$schema=)(?:\.\./)+")


def new(
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder to write; it may exist if it is empty.")],
    example: Annotated[
        str, named("NAME", f"The example to begin with: {', '.join(EXAMPLES)}.", one_of(*EXAMPLES))
    ] = "own-algorithm",
) -> None:
    """Write a new project that runs as it is.

    Examples: an algorithm, a model with its data, or a shelf of machines to describe.
    """
    if example not in EXAMPLES:
        raise UsageError("--example", repr(example), f"an example: {nearest(example, EXAMPLES)}")
    target = given_path(folder, "DIR")
    if target.is_dir() and any(target.iterdir()):
        raise UsageError("DIR", f"{target}, which is not empty", "a new or an empty folder")
    if target.exists() and not target.is_dir():
        raise UsageError("DIR", f"the file {target}", "a new or an empty folder")
    files = _files(example)
    try:
        for name, text in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("DIR", f"cannot write {target}: {error.strerror}; choose another", "") from None
    print(*(target / name for name in files if "/" not in name), sep="\n")
    print(f"next: cd {target}; simcluster run experiment.yaml")


def schema(kind: Annotated[str, named_argument("KIND", "topology or experiment.", one_of(*SCHEMAS))]) -> None:
    """Print the JSON schema of topology or experiment files.

    An editor completes and checks keys with it.
    """
    if kind not in SCHEMAS:
        raise UsageError("kind", repr(kind), nearest(kind, SCHEMAS))
    print(schema_text(kind), end="")


def _files(example: str) -> dict[str, str]:
    """Return the text of each file of *example*, by its path in the project."""
    own = shipped_folder("experiments") / "new" / example
    sources = {path.name: path for path in sorted(own.iterdir()) if path.is_file()}
    for name, source in EXAMPLES[example].items():
        kind, _, rest = source.partition("/")
        sources[name] = shipped_folder("experiments" if kind == "experiments" else "topologies") / rest
    sources |= {f"schemas/{kind}.json": shipped_folder("schemas") / f"{kind}.json" for kind in SCHEMAS}
    return {name: _REFERENCE.sub(r"\1", path.read_text(encoding="utf-8")) for name, path in sources.items()}
