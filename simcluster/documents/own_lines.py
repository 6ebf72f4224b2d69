"""Lines of user code that do something, found in its source: a warning names them."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

LOADS = ("copy_", "fill_", "set_", "zero_")
"""Methods that give a tensor other values, as a message does, without arithmetic."""


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def tree_of(file: str) -> ast.Module:
    """Return the source of *file*, or of a cell or a source in memory; an empty one if none can be read."""
    linecache.checkcache(file)
    try:
        return _parsed("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _functions(file: str, name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree_of(file)) if isinstance(node, _FUNCTIONS) and node.name == name)


def update_line(file: str, function: str, line: int) -> int | None:
    """Return the line of *function* in *file* that changes tensors in place, the last before *line* if any is.

    None if no line is known to; 0 if all that is known only loads values.
    """
    own = [body for body in _functions(file, function) if body.lineno <= line <= (body.end_lineno or line)]
    found = sorted(update for body in own for update in _updates(body, _looped(body)))
    arithmetic = [at for at, loads in found if not loads]
    if not arithmetic:
        return 0 if found else None
    return max((at for at in arithmetic if at < line), default=arithmetic[-1])


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _looped(body: ast.AST) -> set[str]:
    """Return the names that the loops of *body* give values: those of tensors, unlike other plain names."""
    targets = [loop.target for loop in ast.walk(body) if isinstance(loop, ast.For)]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _updates(body: ast.AST, looped: set[str]) -> Iterator[tuple[int, bool]]:
    """Yield (line, whether it only loads) of what changes a tensor in place, outside functions within *body*."""
    for node in ast.iter_child_nodes(body):
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            continue
        yield from _updates(node, looped)
        if isinstance(node, ast.AugAssign) and (not isinstance(node.target, ast.Name) or node.target.id in looped):
            yield node.lineno, False
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            method = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
            if method == "step" or (method.endswith("_") and not method.endswith("__")):
                yield node.lineno, method in LOADS


def argument_line(file: str, name: str, value: object, function: str) -> int | None:
    """Return the first line of *function* in *file*, or else of all of it, that passes *value* as *name*."""
    for place in (*_functions(file, function), tree_of(file)):
        keywords = [node for node in ast.walk(place) if isinstance(node, ast.keyword) and node.arg == name]
        lines = [key.value.lineno for key in keywords if getattr(key.value, "value", ...) == value]
        if lines:
            return min(lines)
    return None
