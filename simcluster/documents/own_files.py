"""The files of people's own code: which of them a node on another machine needs, and where it finds them there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

_brought: list[Path] = []


def look_below(folder: Path) -> None:
    """From now on own code named by an absolute path is looked for below *folder* first, where a launcher put it."""
    _brought[:] = [folder]


def place_below(folder: Path, path: Path) -> Path:
    """Where below *folder* the file is put that has the absolute *path* elsewhere. Raises ValueError if nowhere."""
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} is not the whole path of a file")
    return folder / path.relative_to(path.anchor)


def brought_as(path: Path) -> Path | None:
    """Where a launcher put the file that has *path* there, if it did."""
    places = [place_below(folder, path) for folder in _brought if path.is_absolute() and ".." not in path.parts]
    return next((place for place in places if os.path.isfile(place)), None)


def files_of(references: Iterable[str]) -> tuple[Path, ...]:
    """The files behind *references*, each "/file.py:name" that has been loaded: they, and what they import beside them.

    What lies in their folder and was not imported is left out: it may be anything. So is what is installed.
    """
    loaded = [Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    own = [file for file in loaded if file.suffix == ".py" and file.is_file() and not _installed(file)]
    found: dict[Path, None] = {}
    for reference in references:
        path = Path(reference.rpartition(":")[0])
        found[path] = None
        found |= dict.fromkeys(sorted(file for file in own if file.is_relative_to(path.parent)))
    return tuple(found)


def _installed(file: Path) -> bool:
    """Whether *file* is of a package that every node has, or has to have, by itself."""
    here = Path(__file__).parent.parent
    installed = [here, here.parent / "simcluster_backends", Path(sys.prefix), Path(sys.base_prefix)]
    return any(file.is_relative_to(folder) for folder in installed) or any(
        part in ("site-packages", "dist-packages") for part in file.parts
    )
