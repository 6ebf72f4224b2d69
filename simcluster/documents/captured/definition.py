"""Find the text of a function or class in its file, cell or prompt, and the names that it uses."""

from __future__ import annotations

import ast
import builtins
import linecache
import symtable
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from simcluster.documents.own_lines import tree_of

Defining = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


@dataclass(frozen=True)
class Definition:
    """The definition of a function or class in *file*: its dedented *text*, with the decorators.

    *is_top* is True if the definition is at the top level of its module.
    """

    text: str
    node: Defining
    is_top: bool
    file: str

    @property
    def line(self) -> int:
        return _begin(self.node)

    @property
    def _statement(self) -> str:
        return f"({self.text})" if isinstance(self.node, ast.Lambda) else self.text

    def names(self) -> list[str]:
        """Return the outside names that the text uses, including in annotations, except builtins."""
        found = dict.fromkeys(_outside(symtable.symtable(self._statement, "own", "exec")))
        for tree in ast.walk(ast.parse(self._statement)):
            for note in (getattr(tree, "annotation", None), getattr(tree, "returns", None)):
                if isinstance(note, ast.Constant) and isinstance(note.value, str):
                    found |= dict.fromkeys(n.id for n in ast.walk(_expression(note.value)) if isinstance(n, ast.Name))
        own = getattr(self.node, "name", None)
        return [name for name in found if name != own and not hasattr(builtins, name)]

    def chains(self) -> list[str]:
        """Return every dotted name that the text uses, such as torch.nn.functional."""
        return [dotted for tree in ast.walk(ast.parse(self._statement)) if (dotted := _dotted(tree)) is not None]


def definition_of(what: Any) -> Definition | None:
    """Return the definition of *what*, a function or a class; None if its text is not known."""
    if isinstance(what, type):
        return _class(what)
    code: CodeType = what.__code__
    found = [
        (node, top)
        for node, top in _definitions(code.co_filename)
        if not isinstance(node, ast.ClassDef) and (_begin(node), _called(node)) == (code.co_firstlineno, code.co_name)
    ]
    if len(found) > 1:  # several lambdas on one line
        spots = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
        found = [pair for pair in found if spots and _holds(pair[0], min(spots), max(spots))] or found
        found.sort(key=lambda pair: pair[0].end_col_offset or 0)
    return _cut(code.co_filename, *found[0]) if found else None


def _class(what: type) -> Definition | None:
    codes = [value.__code__ for value in vars(what).values() if hasattr(value, "__code__")]
    files = [code.co_filename for code in codes if not code.co_filename.startswith("<string>")]
    main = getattr(sys.modules.get(what.__module__), "__file__", None)
    # A class without methods does not record its file, so take the latest definition of its name.
    files += [main] if main is not None else list(linecache.cache)[::-1]
    for file in dict.fromkeys(files):
        found = [(n, top) for n, top in _definitions(file) if isinstance(n, ast.ClassDef) and n.name == what.__name__]
        if found:
            return _cut(file, *found[-1])
    return None


def _definitions(file: str) -> Iterator[tuple[Defining, bool]]:
    """Yield (definition, whether it is at the top level) for each function and class in *file*."""
    tree = tree_of(file)
    tops = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield node, id(node) in tops


def _cut(file: str, node: Defining, is_top: bool) -> Definition:
    lines = linecache.getlines(file)
    if isinstance(node, ast.Lambda):
        return Definition(ast.get_source_segment("".join(lines), node) or ast.unparse(node), node, is_top, file)
    return Definition(textwrap.dedent("".join(lines[_begin(node) - 1 : node.end_lineno])).rstrip(), node, is_top, file)


def _begin(node: Defining) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _called(node: Defining) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _holds(node: Defining, first: tuple[int, int], last: tuple[int, int]) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= first <= last <= end


def _outside(table: symtable.SymbolTable) -> Iterator[str]:
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_global() or (is_module and symbol.is_referenced() and not symbol.is_assigned()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _outside(inner)


def _expression(text: str) -> ast.AST:
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError:
        return ast.Pass()


def _dotted(tree: ast.AST) -> str | None:
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.Attribute) and (left := _dotted(tree.value)) is not None:
        return f"{left}.{tree.attr}"
    return None
