"""Lines of user code that do something, found in its source: a warning names them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

LOADS = ("copy_", "fill_", "set_", "zero_")
"""Methods that give a tensor other values, as a message does, without arithmetic."""


@lru_cache(maxsize=16)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def update_line(file: str, function: str, line: int) -> int | None:
    """Return the line of *function* in *file* that changes tensors in place, the last before *line* if any is.

    None if no line is known to; 0 if all that is known only loads values.
    """
    tree = _tree(file)
    bodies = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []
    own = [body for body in bodies if body.name == function and body.lineno <= line <= (body.end_lineno or line)]
    found = sorted(update for body in own for update in _updates(body))
    arithmetic = [at for at, loads in found if not loads]
    if not arithmetic:
        return 0 if found else None
    return max((at for at in arithmetic if at < line), default=arithmetic[-1])


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _updates(body: ast.AST) -> Iterator[tuple[int, bool]]:
    """Yield (line, whether it only loads) of what changes a tensor in place, outside functions within *body*."""
    looped = {
        name.id
        for loop in ast.walk(body)
        if isinstance(loop, ast.For)
        for name in ast.walk(loop.target)
        if isinstance(name, ast.Name)
    }
    waiting: list[ast.AST] = list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.AugAssign):  # of a number, if the name is neither a loop's nor a part of something
            target = node.target
            if not isinstance(target, ast.Name) or target.id in looped:
                yield node.lineno, False
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            method = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
            if method == "step" or (method.endswith("_") and not method.endswith("__")):
                yield node.lineno, method in LOADS


def argument_line(file: str, name: str, value: object, function: str) -> int | None:
    """Return the first line of *function* in *file*, or else of all of it, that passes *value* as *name*."""
    tree = _tree(file)
    bodies = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)] if tree is not None else []
    places: list[ast.AST] = [body for body in bodies if body.name == function]
    for place in [*places, *([tree] if tree is not None else [])]:
        keywords = [node for node in ast.walk(place) if isinstance(node, ast.keyword) and node.arg == name]
        lines = [
            key.value.lineno for key in keywords if isinstance(key.value, ast.Constant) and key.value.value == value
        ]
        if lines:
            return min(lines)
    return None
