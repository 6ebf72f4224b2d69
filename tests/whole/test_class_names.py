"""A class name has one meaning in the repository, so a search for it finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from tests.support.root import ROOT

MOST_SHARED = 10
SHARED = {
    "Crash": "the plan's word for the fault, which its class must bear; and what a body of the conformance kit raises",
}
"""Names that several classes may bear, each with the reason."""


def places_by_name() -> dict[str, list[str]]:
    """Return where the classes of both packages are defined, those inside classes and functions included."""
    places = defaultdict(list)
    for package in ("simcluster", "backends/simcluster_backends"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return places


@pytest.mark.slow
def test_no_two_classes_share_a_name_except_those_listed() -> None:
    shared = {name: places for name, places in places_by_name().items() if len(places) > 1}
    new = [f"{name}: {', '.join(places)}" for name, places in shared.items() if name not in SHARED]
    assert not new, "name each after what it is in its package:\n" + "\n".join(new)
    assert not SHARED.keys() - shared.keys(), "no longer shared: remove it from SHARED"
    assert len(SHARED) <= MOST_SHARED
