"""The table of results: one row per measurement, on disk as soon as it is known."""

from __future__ import annotations

import csv
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

MOST_WHY = 300
"""Limit on the characters of a reason."""


class Skipped(Exception):
    """A measurement that this machine, or today's simcluster, cannot make. The text says why."""


@dataclass
class Row:
    """A measurement: its *value* in *unit*, ok, skipped or failed, how long it took, and *why*."""

    part: str
    value: str = ""
    unit: str = ""
    status: str = "ok"
    seconds: float = 0.0
    why: str = ""


HEADS = [field.name for field in fields(Row)]


def start(table: Path) -> None:
    """Write the heads of the columns to the file *table*, which may exist."""
    with table.open("w", newline="") as file:
        csv.writer(file).writerow(HEADS)


def append(table: Path, row: Row) -> None:
    """Append *row* to the file *table* and print it."""
    row.why = " ".join(row.why.split())[:MOST_WHY]
    row.seconds = round(row.seconds, 1)
    with table.open("a", newline="") as file:
        csv.writer(file).writerow([getattr(row, name) for name in HEADS])
        file.flush()
        os.fsync(file.fileno())
    print(f"{row.status:<8} {row.part:<32} {row.value:>12} {row.unit:<18} {row.seconds:6.1f} s  {row.why}", flush=True)


def read(table: Path) -> list[dict[str, str]]:
    """Return the rows of the file *table*."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def measured(table: Path, part: str, unit: str = "") -> Iterator[Row]:
    """Yield a row, which the block fills; append it to *table*, also if the block raises.

    An exception in the block becomes the status of the row: no other measurement is affected.
    """
    row = Row(part, unit=unit)
    start_s = time.monotonic()
    try:
        yield row
    except Skipped as reason:
        row.status = "skipped"
        row.why = str(reason)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        row.status = "failed"
        row.why = f"{type(error).__name__}: {error}"
    row.seconds = time.monotonic() - start_s
    append(table, row)
