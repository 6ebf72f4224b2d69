"""Read a trace over time from a CSV file, with the line of every error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

from simcluster.documents.yaml import read_text
from simcluster.errors import Problem, UsageError
from simcluster.units import parse_bandwidth_or_zero

TIME = "time_s"
MAX_ROWS = 10_000
MAX_PROBLEMS = 20

V = TypeVar("V", bound="float | str")
Rows: TypeAlias = "tuple[tuple[float, V], ...]"


def read_trace(path: Path, problems: list[Problem]) -> Rows[float] | None:
    """Return the rows (time_s, factor) of *path*, or None and longer *problems*. Blank lines and # comments are
    skipped.
    """
    return _read_table(path, {"factor": _factor}, problems)


def read_rates(path: Path, problems: list[Problem]) -> Rows[float | str] | None:
    """Do the same for a bandwidth: rows (time_s, factor of 0 or above), or (time_s, bandwidth as text)."""
    columns: dict[str, Callable[[str], float | str]] = {"factor": _share, "bandwidth": _bandwidth}
    return _read_table(path, columns, problems)


def _read_table(path: Path, columns: Mapping[str, Callable[[str], V]], problems: list[Problem]) -> Rows[V] | None:
    """Return the rows of *path*; its second column is one of *columns*, which map to their cells' readers."""
    try:
        text = read_text(path)
    except UsageError as error:
        problems += error.problems
        return None
    found: list[Problem] = []
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if _says_something(line)]
    head = tuple(cell.strip() for cell in lines[0][1].split(",")) if lines else ()
    if len(head) != 2 or head[0] != TIME or head[1] not in columns:
        heads = " or ".join(f"{TIME},{column}" for column in columns)
        expected = f"the line {heads} and rows of two numbers below it"
        problems.append(Problem("trace", repr(",".join(head)), expected, str(path), lines[0][0] if lines else None))
        return None
    rows: list[tuple[float, V]] = []
    for number, line in lines[1:]:
        row = _read_row(line, columns[head[1]], rows[-1][0] if rows else None)
        if isinstance(row, str):
            found.append(Problem("trace", repr(line.strip()[:80]), row, str(path), number))
        else:
            rows.append(row)
    if not rows and not found:
        found.append(Problem("trace", "no rows", "at least one, at 0 seconds", str(path)))
    if len(rows) > MAX_ROWS:
        found.append(Problem("trace", f"{len(rows)} rows", f"at most {MAX_ROWS}", str(path)))
    problems += found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem("trace", f"{len(found) - MAX_PROBLEMS} more wrong rows", "none", str(path)))
    return None if found else tuple(rows)


def first_fault(time_s: float, before_s: float | None) -> str | None:
    """Return the expected time of a row if its own is wrong: the first is 0, and all rise."""
    if before_s is None:
        return None if time_s == 0 else "0 first: the value at the start of the run"
    return None if time_s > before_s else f"a time after {before_s:g} s, that of the row above"


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _read_row(line: str, read: Callable[[str], V], before_s: float | None) -> tuple[float, V] | str:
    """Return the row, or what was expected."""
    cells = line.split(",")
    try:
        time_s = float(cells[0])
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s) or len(cells) != 2:
        return f"two numbers: seconds and {'a bandwidth' if read is _bandwidth else 'a factor'}"
    try:
        value = read(cells[1].strip())
    except ValueError as error:
        return str(error)
    return first_fault(time_s, before_s) or (time_s, value)


def _factor(cell: str) -> float:
    """Return how many times slower. Raise ValueError with what was expected, like its siblings."""
    factor = _number(cell)
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError("finite numbers, the factor above zero")
    return factor


def _share(cell: str) -> float:
    share = _number(cell)
    if not (math.isfinite(share) and share >= 0):
        raise ValueError("finite numbers, the factor 0 or above")
    return share


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise ValueError("two numbers: seconds and a factor") from None


def _bandwidth(cell: str) -> str:
    try:
        parse_bandwidth_or_zero(cell)
    except ValueError as error:
        raise ValueError(str(error).partition("expected ")[2]) from None
    return cell
