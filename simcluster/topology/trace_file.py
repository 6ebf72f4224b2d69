"""Reads a trace of factors against time from a CSV file, with the line of everything that is wrong.

This file knows the two columns. It must not know what is slowed down by them.
"""

from __future__ import annotations

import math
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.yaml_lines import read_text

HEAD = ("time_s", "factor")
MAX_ROWS = 10_000
MAX_PROBLEMS = 20

Rows = tuple[tuple[float, float], ...]


def read_trace(path: Path, problems: list[Problem]) -> Rows | None:
    """The rows (time_s, factor) of *path*, or None, with *problems* longer. Blank lines and # comments are skipped."""
    try:
        text = read_text(path)
    except UsageError as error:
        problems += error.problems
        return None
    found: list[Problem] = []
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if _says_something(line)]
    head = tuple(cell.strip() for cell in lines[0][1].split(",")) if lines else ()
    if head != HEAD:
        expected = f"the line {','.join(HEAD)} and rows of two numbers below it"
        problems.append(Problem("trace", repr(",".join(head)), expected, str(path), lines[0][0] if lines else None))
        return None
    rows: list[tuple[float, float]] = []
    for number, line in lines[1:]:
        row = _read_row(line, rows[-1][0] if rows else None)
        if isinstance(row, str):
            found.append(Problem("trace", repr(line.strip()[:80]), row, str(path), number))
        else:
            rows.append(row)
    if not rows and not found:
        found.append(Problem("trace", "no rows", "one at least, at 0 seconds", str(path)))
    if len(rows) > MAX_ROWS:
        found.append(Problem("trace", f"{len(rows)} rows", f"at most {MAX_ROWS}", str(path)))
    problems += found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem("trace", f"{len(found) - MAX_PROBLEMS} more wrong rows", "none", str(path)))
    return None if found else tuple(rows)


def first_fault(time_s: float, before_s: float | None) -> str | None:
    """What a row's time should have been, if it is wrong: the first is 0, and all rise."""
    if before_s is None:
        return None if time_s == 0 else "0 first: the factor at the beginning of the run"
    return None if time_s > before_s else f"a time after {before_s:g} s, that of the row above"


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read_row(line: str, before_s: float | None) -> tuple[float, float] | str:
    """The row, or what was expected."""
    cells = line.split(",")
    try:
        time_s, factor = (float(cell) for cell in cells)
    except ValueError:
        return "two numbers: seconds and a factor"
    if not (math.isfinite(time_s) and math.isfinite(factor) and factor > 0):
        return "finite numbers, the factor above zero"
    return first_fault(time_s, before_s) or (time_s, factor)
