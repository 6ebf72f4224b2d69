"""Tables of measurements: CSV files in docs/tables, which the site shows on their pages."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.root import ROOT

TABLES = ROOT / "docs" / "tables"


def write(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write *rows* as CSV. The first row has the names of the columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read(path: Path) -> list[list[str]]:
    """Return the rows of a table. The first row has the names of the columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
