"""The files of a script: checked before anything starts, and brought to nodes on other machines."""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from simcluster.documents.user_code import brought_as

MOST_FILES = 1000


def wrong_script(file: Path) -> str:
    """Return why *file* is no program of Python; empty if it is one."""
    if not file.is_file():
        return "a directory" if file.is_dir() else "no such file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes, which its ranks print
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: SyntaxError: {error.msg}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return ""


def module_file(name: str, folder: Path) -> Path | None:
    """Return the file that `python -m name` runs in *folder*; None if there is none."""
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
    """Return the directory from which *file* imports: its own or, if it is *module*, the one that has its package."""
    if not module:
        return file.parent
    parts = module.split(".")
    depth = len(parts) if file.stem in ("__init__", "__main__") and parts[-1] != file.stem else len(parts) - 1
    return file.parents[depth]


def place_here(file: Path) -> Path:
    """Return where *file* is on this machine: a launcher may have brought it."""
    return brought_as(file) or file


def files_of_script(file: Path, module: str = "") -> tuple[Path, ...]:
    """Return *file* and all files that it imports from its directory, or *module* from that of its package.

    Imports are read, not made. Files there that nothing imports are left out, as they may be anything.
    """
    root = root_of(file, module)
    found: dict[Path, None] = dict.fromkeys(_packages(file, root))
    pending = [*found, file]
    while pending and len(found) <= MOST_FILES:
        current = pending.pop()
        found[current] = None
        for name in _imported(current, root):
            pending += [one for one in _files_of(root / Path(*name.split(".")), root) if one not in found]
    return tuple(found)


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Yield every name that *file* imports and that may be a module, as seen from *root*."""
    package = ".".join(file.relative_to(root).parent.parts)
    for statement in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - statement.level + 1] if statement.level else []
            base = ".".join([*filter(None, above), *filter(None, [statement.module])])
            yield from (f"{base}.{alias.name}".strip(".") for alias in statement.names)
            if base:
                yield base


def _files_of(path: Path, root: Path) -> list[Path]:
    """Return the files of the module at *path*, without suffix, and of the packages that it is in."""
    files = [path.with_name(f"{path.name}.py"), path / "__init__.py"]
    return [file for found in files if os.path.isfile(found) for file in (*_packages(found, root), found)]


def _packages(file: Path, root: Path) -> list[Path]:
    inside = [folder / "__init__.py" for folder in file.parents if folder != root and folder.is_relative_to(root)]
    return [one for one in inside if one.is_file() and one != file]
