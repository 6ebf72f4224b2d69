"""Walls that import-linter cannot see: names of modules in strings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from simcluster import wings
from tests.support.root import ROOT

LIBRARY = ROOT / "simcluster"
DOORS = {"__init__.py", "moved.py", "wings.py"}
"""Files of the core that name modules of the wings."""


def strings_of(file: Path) -> Iterator[str]:
    """Yield the strings in the code of *file*, docstrings aside."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def files_that_name(prefix: str) -> set[str]:
    files = {file.relative_to(LIBRARY).as_posix(): file for file in LIBRARY.rglob("*.py")}
    return {name for name, file in files.items() if any(text.startswith(prefix) for text in strings_of(file))}


@pytest.mark.slow
def test_only_the_door_loads_a_backend() -> None:
    assert files_that_name("simcluster_backends.") == {"backend.py"}


@pytest.mark.slow
def test_the_core_names_modules_of_the_wings_only_at_its_doors() -> None:
    named = files_that_name("simcluster.lab") | files_that_name("simcluster.lm")
    assert {name for name in named if not name.startswith(("lab/", "lm/"))} <= DOORS


@pytest.mark.slow
def test_no_wing_names_a_module_of_the_other() -> None:
    assert {name for name in files_that_name("simcluster.lm") if name.startswith("lab/")} == set()
    assert {name for name in files_that_name("simcluster.lab") if name.startswith("lm/")} == set()


@pytest.mark.parametrize("name", wings._DOORS)
def test_every_door_leads_somewhere(name: str) -> None:
    assert callable(wings.open_door(name))
