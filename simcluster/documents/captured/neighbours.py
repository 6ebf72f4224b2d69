"""The user's own modules that a captured source imports: they travel with it, installed packages do not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from simcluster.errors import Problem, UsageError
from simcluster.process.places import LIBRARY


def is_own(module: ModuleType) -> bool:
    """Return whether *module* is a file of the user's, which no other machine has."""
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        return False
    path = Path(file).resolve()
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return False
    places = (*LIBRARY, Path(sys.prefix), Path(sys.base_prefix))
    return not any(path.is_relative_to(place.resolve()) for place in places)


def neighbours_of(modules: Iterable[ModuleType]) -> dict[str, bytes]:
    """Return the files of *modules* and of all own modules that these import, by path relative to their root."""
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
            raise UsageError(Problem(module.__name__, error.strerror or "", "a file that can be read")) from None
        names = [".".join(parts[:end]) for end in range(1, len(parts))]
        names += _imported(found[name], parts if is_package else parts[:-1])
        waiting += [sys.modules[name] for name in names if name in sys.modules and is_own(sys.modules[name])]
    return found


def _imported(content: bytes, package: list[str]) -> list[str]:
    """Return every module that the text *content*, of a module in *package*, may import."""
    names: list[str] = []
    for statement in ast.walk(ast.parse(content)):
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            above = package[: len(package) - statement.level + 1] if statement.level else []
            base = ".".join([*above, *filter(None, [statement.module])])
            names += [base, *(f"{base}.{alias.name}" for alias in statement.names)]
    return [".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 2)]
