"""Find the user's own modules that a captured source imports: they must travel with the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from simcluster.errors import UsageError
from simcluster.process.own_frames import LIBRARY


def travels(module: ModuleType) -> bool:
    """Return whether *module* is the user's own file, which other machines lack."""
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        return False
    path = Path(file).resolve()
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return False
    places = (*LIBRARY, Path(sys.prefix), Path(sys.base_prefix))
    return not any(path.is_relative_to(place.resolve()) for place in places)


def neighbours_of(modules: Iterable[ModuleType]) -> dict[str, bytes]:
    """Return relative path -> content of *modules* and of all user modules that they import.

    A path is relative to the directory of the module's top-level package.
    """
    found: dict[str, bytes] = {}
    waiting, seen = list(modules), set[str]()
    while waiting:
        module = waiting.pop()
        if module.__name__ in seen:
            continue
        seen.add(module.__name__)
        parts = module.__name__.split(".")
        is_package = hasattr(module, "__path__")
        name = "/".join(parts) + ("/__init__.py" if is_package else ".py")
        try:
            found[name] = Path(str(module.__file__)).read_bytes()
        except OSError as error:
            raise UsageError(module.__name__, error.strerror or "", "a file that can be read") from None
        names = [".".join(parts[:end]) for end in range(1, len(parts))]
        for inner in imported_by(found[name], parts if is_package else parts[:-1]):
            names += [".".join(inner.split(".")[:end]) for end in range(1, inner.count(".") + 2)]
        waiting += [sys.modules[name] for name in names if name in sys.modules and travels(sys.modules[name])]
    return found


def imported_by(content: bytes, package: Sequence[str]) -> Iterator[str]:
    """Yield each imported name that may be a module, from *content*, the source of a module.

    *package* has the parts of the name of the module's package, for relative imports.
    """
    for statement in ast.walk(ast.parse(content)):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) - statement.level + 1] if statement.level else ()
            base = ".".join([*above, *filter(None, [statement.module])])
            yield from (f"{base}.{alias.name}".strip(".") for alias in statement.names)
            yield base
