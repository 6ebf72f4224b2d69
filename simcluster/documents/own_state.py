"""Find module-level state of user code that a run changed, and load code with separate state."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from simcluster.documents.own_lines import tree_of
from simcluster.documents.settings import Function
from simcluster.documents.user_code import brought_as, load_again, modules_beside

# Limits on how much of a module is compared. Beyond them a change may be missed, but none is
# reported wrongly.
MOST_ITEMS = 10_000
MOST_DEPTH = 5
MOST_ARRAY_BYTES = 1 << 20

Frozen = Any
"""The state of a value at one moment.

Two states are equal unless a change in between was detected.
"""


def path_of(reference: str) -> Path:
    """Return the file of *reference*, "/file.py:name"."""
    path = Path(reference.rpartition(":")[0])
    return brought_as(path) or path


def loaded_apart(references: Sequence[str], seed: int) -> tuple[list[Function], list[ModuleType]]:
    """Load the functions of *references*, each "/file.py:name", again, and the modules next to their files.

    Return the functions and these modules. The global generators are seeded from *seed* while the
    modules load. They share no state with the modules loaded before, which remain in sys.modules.
    """
    paths = [path_of(reference) for reference in references]
    known = _beside_all(paths)
    for name in known:
        del sys.modules[name]
    try:
        modules = {path: load_again(path, seed) for path in dict.fromkeys(paths)}
        fresh = _beside_all(paths)
    finally:
        for name in _beside_all(paths):
            del sys.modules[name]
        sys.modules.update(known)
    names = [reference.rpartition(":")[2] for reference in references]
    return [getattr(modules[path], name) for path, name in zip(paths, names, strict=True)], list(fresh.values())


def _beside_all(paths: Sequence[Path]) -> dict[str, ModuleType]:
    return {name: module for path in paths for name, module in modules_beside(path).items()}


def state_of(modules: Sequence[ModuleType]) -> dict[str, Frozen]:
    """Return "file:line (name)" -> state of each module-level value in *modules*."""
    freeze = _Freezing({module.__name__ for module in modules})
    found = {}
    for module in modules:
        file = str(module.__file__)
        lines = _lines(file)
        for name, value in list(vars(module).items()):
            if not name.startswith("__") and not isinstance(value, ModuleType):
                found[f"{file}:{lines.get(name, 1)} ({name})"] = freeze.value(value)
    return found


def changed(before: Mapping[str, Frozen], after: Mapping[str, Frozen]) -> list[str]:
    """Return the places in *after* with a state that is new or differs from *before*, in order."""
    return [place for place, value in after.items() if place not in before or before[place] != value]


def _lines(file: str) -> dict[str, int]:
    """Return name -> first line of each name that *file* assigns or defines at module level."""
    found: dict[str, int] = {}
    for statement in tree_of(file).body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(statement.name, statement.lineno)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for part in ast.walk(statement):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    found.setdefault(part.id, statement.lineno)
    return found


class _Freezing:
    """A walk over values that computes their states.

    It looks into containers, and into classes, instances and functions of the modules *own*.
    """

    def __init__(self, own: set[str]) -> None:
        self._own = own
        self._left = MOST_ITEMS

    def value(self, value: Any, depth: int = 0) -> Frozen:
        self._left -= 1
        # Beyond the limits, all values count as equal.
        if self._left < 0 or depth > MOST_DEPTH:
            return ...
        kind = type(value)
        if value is None or kind in (bool, int, str, bytes, float, complex):
            # NaN is not equal to itself, but its repr is.
            return kind.__name__, repr(value) if kind in (float, complex) else value
        if isinstance(value, (list, tuple, deque)):
            return kind.__name__, tuple(self.value(item, depth + 1) for item in list(value)[: self._left + 1])
        if isinstance(value, Mapping):
            return kind.__name__, self._items(value, depth)
        if isinstance(value, (set, frozenset)):
            return kind.__name__, frozenset(map(hash, value))
        # torch counts the changes of a tensor in place: no need to compare its values.
        if isinstance(value, Tensor):
            return "tensor", id(value), value._version
        if isinstance(value, np.ndarray):
            whole = value.nbytes <= MOST_ARRAY_BYTES and not value.dtype.hasobject
            return "array", id(value), hashlib.sha256(value.tobytes()).digest() if whole else None
        return self._of_own(value, depth)

    def _of_own(self, value: Any, depth: int) -> Frozen:
        if isinstance(value, FunctionType) and value.__module__ in self._own:
            return "function", id(value), self.value((value.__defaults__, value.__kwdefaults__), depth + 1)
        if isinstance(value, type):
            plain = {} if value.__module__ not in self._own else _plain(vars(value))
            return "class", id(value), self._items(plain, depth)
        if type(value).__module__ in self._own and hasattr(value, "__dict__"):
            return "object", id(value), self._items(vars(value), depth)
        return "object", id(value)

    def _items(self, found: Mapping[Any, Any], depth: int) -> Frozen:
        pairs = list(found.items())[: self._left + 1]
        return tuple((self.value(key, depth + 1), self.value(item, depth + 1)) for key, item in pairs)


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a class except methods, descriptors and special names."""
    return {
        name: value
        for name, value in attributes.items()
        if not name.startswith("__") and not hasattr(value, "__get__") and name != "_abc_impl"
    }
