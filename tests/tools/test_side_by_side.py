"""docs/side-by-side.md repeats numbers of pages that commands make: each stands on a page that its row links to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.root import ROOT

PAGE = ROOT / "docs" / "side-by-side.md"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "](" in line]


def missing(row: str) -> list[str]:
    """Return the numbers of *row* that stand on none of the pages that it links to."""
    names = re.findall(r"\]\(([\w-]+\.md)", row)
    known = {number for name in names for number in NUMBER.findall((PAGE.parent / name).read_text(encoding="utf-8"))}
    words = re.sub(r"\]\([^)]*\)|`[^`]*`", "", row)
    return [number for number in NUMBER.findall(words) if number not in known]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_every_number_of_a_row_stands_on_a_page_that_it_links_to(row: str) -> None:
    assert missing(row) == []


def test_a_number_that_no_page_has_is_found() -> None:
    assert missing("| time | median error 0.6 %, worst 98.76 % | [fidelity](fidelity.md) |") == ["98.76"]


def test_the_rows_are_all_there_and_every_test_named_exists() -> None:
    assert len(ROWS) >= 14
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 3
    assert all(Path(ROOT / name).is_file() for name in named)
