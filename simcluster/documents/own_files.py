"""Files of user code: which ones a node on another machine needs, and where it finds them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

_brought: list[Path] = []


def look_below(folder: Path) -> None:
    """From now on look for user code with an absolute path first below *folder*, where a launcher put it."""
    _brought[:] = [folder]


def place_below(folder: Path, path: Path) -> Path:
    """Return where below *folder* to put the file with the absolute *path*. Raise ValueError if nowhere."""
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} is not the absolute path of a file")
    return folder / path.relative_to(path.anchor)


def brought_as(path: Path) -> Path | None:
    """Return where a launcher put the file *path*, if it did."""
    places = [place_below(folder, path) for folder in _brought if path.is_absolute() and ".." not in path.parts]
    return next((place for place in places if os.path.isfile(place)), None)


def files_of(references: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of *references*, each a loaded "/file.py:name", and the modules imported from their directories.

    Files there that were not imported are left out, as they may be anything; so are installed packages.
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
    """Whether *file* belongs to a package that every node has or must have installed."""
    here = Path(__file__).parent.parent
    installed = [here, here.parent / "simcluster_backends", Path(sys.prefix), Path(sys.base_prefix)]
    return any(file.is_relative_to(folder) for folder in installed) or any(
        part in ("site-packages", "dist-packages") for part in file.parts
    )
