"""The module-level state of user code: what a run changed in it, and loading the code again with a state of its own."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from simcluster.documents.own_lines import tree_of
from simcluster.documents.user_code import brought_as, load_again, modules_beside

MOST_ITEMS, MOST_DEPTH, MOST_ARRAY_BYTES = 10_000, 5, 1 << 20
"""Limits on what is looked at in a module: beyond them a change may be missed, and nothing is made up."""

Frozen = Any
"""The state of a value at one moment; equal to another one if nothing has changed that can be seen."""


def path_of(reference: str) -> Path:
    """Return the file of *reference*, "/file.py:name"."""
    path = Path(reference.rpartition(":")[0])
    return brought_as(path) or path


def loaded_apart(reference: str, seed: int) -> tuple[Callable[..., Any], list[ModuleType]]:
    """Return the function of *reference*, "/file.py:name", loaded again with the modules next to it; and all of them.

    They find the global generators seeded from *seed*, and share no state with those loaded before, which stay the
    known ones.
    """
    path = path_of(reference)
    known = modules_beside(path)
    for name in known:
        del sys.modules[name]
    try:
        module = load_again(path, seed)
        fresh = modules_beside(path)
    finally:
        for name in modules_beside(path):
            del sys.modules[name]
        sys.modules.update(known)
    return getattr(module, reference.rpartition(":")[2]), list(fresh.values())


def state_of(modules: Sequence[ModuleType]) -> dict[str, Frozen]:
    """Return the values at module level, by "file:line (name)"."""
    freeze, found = _Freezing({module.__name__ for module in modules}), {}
    for module in modules:
        file = str(module.__file__)
        lines = _lines(file)
        for name, value in list(vars(module).items()):
            if not name.startswith("__") and not isinstance(value, ModuleType):
                found[f"{file}:{lines.get(name, 1)} ({name})"] = freeze.value(value)
    return found


def changed(before: Mapping[str, Frozen], after: Mapping[str, Frozen]) -> list[str]:
    """Return the places of the values that differ, in order."""
    return [place for place, value in after.items() if place not in before or before[place] != value]


def _lines(file: str) -> dict[str, int]:
    """Return the lines in which *file* first assigns each name at module level, or defines a function or class."""
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
    """Freezes values, following containers, and classes, instances and functions of the modules *own*."""

    def __init__(self, own: set[str]) -> None:
        self._own, self._left = own, MOST_ITEMS

    def value(self, value: Any, depth: int = 0) -> Frozen:
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            return ...
        kind = type(value)
        if value is None or kind in (bool, int, str, bytes, float, complex):
            return kind.__name__, repr(value) if kind in (float, complex) else value  # NaN differs from itself
        if isinstance(value, (list, tuple, deque)):
            return kind.__name__, tuple(self.value(item, depth + 1) for item in list(value)[: self._left + 1])
        if isinstance(value, Mapping):
            return kind.__name__, self._items(value, depth)
        if isinstance(value, (set, frozenset)):
            return kind.__name__, frozenset(map(hash, value))
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
    """Return the attributes of a class that hold values."""
    return {
        name: value
        for name, value in attributes.items()
        if not name.startswith("__") and not hasattr(value, "__get__") and name != "_abc_impl"
    }
