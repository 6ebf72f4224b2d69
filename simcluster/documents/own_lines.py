"""Search the source of user code for the line that a warning should name."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

LOADS = ("copy_", "fill_", "set_", "zero_")
"""Tensor methods that replace the values without arithmetic, as a received message does."""


@lru_cache(maxsize=16)
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def tree_of(file: str) -> ast.Module:
    """Return the syntax tree of *file*, or of a notebook's cell; an empty one if it has errors."""
    # linecache also knows the sources of notebook cells and of captured functions.
    linecache.checkcache(file)
    try:
        return _parsed("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _functions(file: str, name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree_of(file)) if isinstance(node, _FUNCTIONS) and node.name == name)


def update_line(file: str, function: str, line: int) -> int | None:
    """Return the line of *function* in *file* that changes tensors in place by arithmetic.

    If there are several, return the last one before *line*, or else the last one. Return None if no
    line changes a tensor, and 0 if all changes only load values.
    """
    own = [body for body in _functions(file, function) if body.lineno <= line <= (body.end_lineno or line)]
    found = sorted(update for body in own for update in _updates(body, _looped(body)))
    arithmetic = [at for at, loads in found if not loads]
    if not arithmetic:
        return 0 if found else None
    return max((at for at in arithmetic if at < line), default=arithmetic[-1])


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _looped(body: ast.AST) -> set[str]:
    """Return the names that the for loops of *body* assign.

    `for p in model.parameters(): p -= ...` changes a tensor; `count += 1` usually changes none.
    """
    targets = [loop.target for loop in ast.walk(body) if isinstance(loop, ast.For)]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _updates(body: ast.AST, looped: set[str]) -> Iterator[tuple[int, bool]]:
    """Yield (line, whether it only loads values) of each change of a tensor in place in *body*.

    Functions within *body* are skipped. *looped* has names that are assumed to be tensors.
    """
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


def line_that_sums(file: str, function: str) -> int | None:
    """Return the first line of *function* in *file* that passes `reduction="sum"` to a call.

    If the function has no such line, search the whole file. Return None if that has none either.
    """
    for place in (*_functions(file, function), tree_of(file)):
        keywords = [node for node in ast.walk(place) if isinstance(node, ast.keyword) and node.arg == "reduction"]
        lines = [key.value.lineno for key in keywords if getattr(key.value, "value", None) == "sum"]
        if lines:
            return min(lines)
    return None
