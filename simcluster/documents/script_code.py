"""Check the files of a script before a run, and find the files that other machines need."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

from simcluster.documents.captured.neighbours import imported_by
from simcluster.documents.user_code import brought_as

MOST_FILES = 1000


def wrong_script(file: Path) -> str:
    """Return why *file* is not a valid Python program; "" if it is one."""
    if not file.is_file():
        return "a directory" if file.is_dir() else "no such file"
    try:
        with warnings.catch_warnings():
            # Python warns of invalid escapes here; the ranks print the same warning when they run
            # the file.
            warnings.simplefilter("ignore")
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: SyntaxError: {error.msg}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def module_file(name: str, folder: Path) -> Path | None:
    """Return the file that `python -m name` would run in *folder*; None if there is none.

    Parent packages are not imported: their code must not run before the run starts.
    """
    where: list[str] = [str(folder), *sys.path]
    for part in name.split("."):
        spec = PathFinder.find_spec(part, where) if part else None
        if spec is None:
            return None
        where = list(spec.submodule_search_locations or ())
    if where:
        spec = PathFinder.find_spec("__main__", where)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def root_of(file: Path, module: str) -> Path:
    """Return the directory that Python puts first on sys.path to run *file*.

    It is the directory of *file* or, for `python -m module`, of the top-level package of *module*.
    """
    if not module:
        return file.parent
    parts = module.split(".")
    depth = len(parts) if file.stem in ("__init__", "__main__") and parts[-1] != file.stem else len(parts) - 1
    return file.parents[depth]


def place_here(file: Path) -> Path:
    """Return the path of *file* on this machine: a launcher may have put it elsewhere."""
    return brought_as(file) or file


def files_of_script(file: Path, module: str = "") -> tuple[Path, ...]:
    """Return *file* and all files below `root_of` it that it imports, directly or indirectly.

    Imports are found in the source, which is not run. Other files there are left out: they may be
    private.
    """
    root = root_of(file, module)
    found: dict[Path, None] = dict.fromkeys(_packages(file, root))
    pending = [*found, file]
    while pending and len(found) <= MOST_FILES:
        current = pending.pop()
        found[current] = None
        for name in filter(None, imported_by(current.read_bytes(), current.relative_to(root).parent.parts)):
            pending += [one for one in _files_of(root / Path(*name.split(".")), root) if one not in found]
    return tuple(found)


def _files_of(path: Path, root: Path) -> list[Path]:
    """Return the file of the module at *path*, without suffix, and each parent's `__init__.py`."""
    files = [path.with_name(f"{path.name}.py"), path / "__init__.py"]
    return [file for found in files if os.path.isfile(found) for file in (*_packages(found, root), found)]


def _packages(file: Path, root: Path) -> list[Path]:
    inside = [folder / "__init__.py" for folder in file.parents if folder != root and folder.is_relative_to(root)]
    return [one for one in inside if one.is_file() and one != file]
