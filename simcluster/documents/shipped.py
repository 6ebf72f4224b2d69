"""Find the topology and experiment files shipped with simcluster, by name, from any directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from simcluster.errors import UsageError
from simcluster.spelling import nearest

Kind = Literal["topologies", "experiments", "schemas"]

SCHEMAS = ("topology", "experiment")
"""The kinds of files with a JSON schema.

In a checkout and in a wheel, the directory of the schemas is next to the directories of these
files. So the first line of each file can name its schema by the same relative path.
"""

_PACKAGE = Path(__file__).resolve().parent.parent
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
PARTS = "parts"
"""The name of the parts list, a file next to the topologies with prices of links and devices."""


def shipped_names(kind: Kind) -> list[str]:
    """Return the sorted names of shipped files: `smolcluster` for `smolcluster.yaml`."""
    folder = _folder(kind)
    return sorted(path.stem for path in folder.glob("*.yaml") if path.stem != PARTS) if folder else []


def parts_path() -> Path:
    """Return the path of the parts list with the prices of links and devices."""
    return (_folder("topologies") or _PACKAGE) / f"{PARTS}.yaml"


def shipped_path(kind: Kind, name: str) -> Path | None:
    """Return the shipped file called *name*, or None.

    A name with directories in it is never found, so a name cannot lead out of the shipped files.
    """
    folder = _folder(kind)
    if folder is None or not _NAME.fullmatch(name) or name == PARTS:
        return None
    path = folder / f"{name}.yaml"
    return path if os.path.isfile(path) else None


def find(kind: Kind, source: str | Path) -> Path:
    """Return the file at the path *source*, or else the shipped file of that name.

    Raise UsageError if none exists.
    """
    path = Path(source)
    what = {"topologies": "topology", "experiments": "experiment"}[kind]
    # os.path.isfile returns False for a name that is too long, and Path.is_file raises.
    if os.path.isfile(path):
        return path
    if shipped := shipped_path(kind, str(source)):
        return shipped
    if path.suffix or len(path.parts) > 1:
        found = "a folder" if os.path.isdir(path) else "no such file"
        raise UsageError(f"{what} {str(source)!r}", found, "the path of a file")
    expected = f"a path, or the name of a shipped {what}: {nearest(str(source), shipped_names(kind))}"
    found = "a folder" if os.path.isdir(path) else "no such file and no such name"
    raise UsageError(f"{what} {str(source)!r}", found, expected)


def schema_text(kind: str) -> str:
    """Return the JSON schema of *kind*, one of SCHEMAS."""
    return (shipped_folder("schemas") / f"{kind}.json").read_text(encoding="utf-8")


def shipped_folder(kind: Kind) -> Path:
    """Return the folder of the shipped files of *kind*."""
    folder = _folder(kind)
    assert folder is not None, f"every wheel has {kind}"
    return folder


def _folder(kind: Kind) -> Path | None:
    # The first is the place in a wheel, the second that in a checkout.
    folders = (_PACKAGE / "shipped" / kind, _PACKAGE.parent / kind)
    return next((folder for folder in folders if folder.is_dir()), None)
