"""Read values over time in a topology document: steps in the document itself, or in a CSV file that it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic_core import InitErrorDetails

from simcluster.documents.models import Block, WrongValue, fault, refuse, tried
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import Schema, ValueValidator, only
from simcluster.documents.yaml import read_text
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError
from simcluster.units import TIMES, parse_bandwidth_or_zero, parse_latency, pattern_of, write_latency

TIME = "time_s"
MAX_ROWS = 10_000
MAX_PROBLEMS = 20

V = TypeVar("V")
Columns: TypeAlias = Mapping[str, Callable[[str], "float | str"]]
"""The possible second columns of a CSV file, with the readers of their cells."""

_FILE = "the path of a CSV file, relative to this one"


class TraceBlock(Block):
    """A block with either a file or the *rows* that the file would hold."""

    file: Annotated[str, only(lambda x: isinstance(x, str), _FILE, {"type": "string"})] | None = None
    rows: ClassVar[str]
    either: ClassVar[str]

    @classmethod
    def faults(cls, given: Mapping[str, Any]) -> Iterable[InitErrorDetails]:
        if ("file" in given) == (cls.rows in given):
            yield fault(found="both" if "file" in given else "neither", expected=f"either {cls.either}")


def one_of_file_and(rows: str) -> dict[str, Any]:
    """Return the `rules` of a `TraceBlock` with *rows*."""
    return {"oneOf": [{"required": ["file"]}, {"required": [rows]}]}


def steps(read: Callable[[Any], V], expected: str, schema: Schema) -> ValueValidator:
    """Validate a mapping of times to values, each by *read*; *schema* is that of a value."""
    times = {"pattern": pattern_of(TIMES)}
    keys = {"type": "object", "minProperties": 1, "propertyNames": times, "description": expected}
    return ValueValidator(lambda value: steps_of(value, read, expected), keys | {"additionalProperties": schema})


def steps_of(value: object, read: Callable[[Any], V], expected: str) -> tuple[tuple[float, V], ...]:
    """Return (time in s, *read* of the value) of each step in a mapping of times."""
    if not isinstance(value, dict) or not value:
        raise WrongValue(expected)
    found: list[Any] = []
    rows: list[Any] = []
    for key, given in value.items():
        made = tried(found, read, given, key)
        at_s = tried(found, parse_latency, key, key, at_key=True)
        if at_s is None:
            continue
        if wrong := _wrong_time(at_s, rows[-1][0] if rows else None):
            found.append(fault(key, found=repr(key), expected=wrong, at_key=True))
        rows.append((at_s, made))
    refuse(found)
    return tuple(rows)


def _wrong_time(time_s: float, before_s: float | None) -> str:
    """Return the expected time of a row if its own is wrong: the first is 0, and all rise."""
    if before_s is None:
        return "0 first: the value at the start of the run" if time_s else ""
    return "" if time_s > before_s else f"a time after {before_s:g} s, that of the row above"


def put_files(reading: DocumentReading) -> None:
    """Put the rows of every CSV file into the document, so that it reads back equally anywhere."""
    nodes, links = reading.document.get(("nodes",)), reading.document.get(("links",))
    for name, node in nodes.items() if isinstance(nodes, dict) else ():
        block = node.get("straggler") if isinstance(node, dict) else None
        if isinstance(block, dict) and block.get("kind") == "trace":
            node["straggler"] = _with_rows(reading, ("nodes", name, "straggler"), block, "factors", _FACTORS)
    for index, link in enumerate(links if isinstance(links, list) else ()):
        block = link.get("trace") if isinstance(link, dict) else None
        if isinstance(block, dict):
            link["trace"] = _with_rows(reading, ("links", index, "trace"), block, "steps", _RATES)


def _with_rows(
    reading: DocumentReading, path: KeyPath, block: dict[str, Any], key: str, columns: Columns
) -> dict[str, Any]:
    """Return *block* with the rows of its file, if it names one, at *key*."""
    if not isinstance(block.get("file"), str) or block.get(key) is not None:
        return block
    file = reading.document.folder_of((*path, "file")) / block["file"]
    rows = _read_table(file, columns, reading.problems) or [(0.0, 1.0)]  # if there are none, that is a problem
    rest = {name: value for name, value in block.items() if name != "file"}
    made = {key: {write_latency(time_s): value for time_s, value in rows}}
    return rest | made if key == "factors" else made | rest


def _read_table(path: Path, columns: Columns, problems: list[Problem]) -> list[tuple[float, float | str]]:
    """Return the rows (time_s, value) of *path*, without blank lines and # comments; or none and longer *problems*."""
    try:
        text = read_text(path)
    except UsageError as error:
        problems += error.problems
        return []
    numbered = enumerate(text.splitlines(), start=1)
    lines = [(number, line) for number, line in numbered if line.strip() and not line.lstrip().startswith("#")]
    head = tuple(cell.strip() for cell in lines[0][1].split(",")) if lines else ()
    if len(head) != 2 or head[0] != TIME or head[1] not in columns:
        heads = " or ".join(f"{TIME},{column}" for column in columns)
        expected = f"the line {heads} and rows of two numbers below it"
        problems.append(Problem("trace", repr(",".join(head)), expected, str(path), lines[0][0] if lines else None))
        return []
    found: list[Problem] = []
    rows: list[tuple[float, float | str]] = []
    for number, line in lines[1:]:
        try:
            rows.append(_read_row(line, columns[head[1]], rows[-1][0] if rows else None))
        except ValueError as error:
            found.append(Problem("trace", repr(line.strip()[:80]), str(error), str(path), number))
    if not rows and not found:
        found.append(Problem("trace", "no rows", "at least one, at 0 seconds", str(path)))
    if len(rows) > MAX_ROWS:
        found.append(Problem("trace", f"{len(rows)} rows", f"at most {MAX_ROWS}", str(path)))
    problems += found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        problems.append(Problem("trace", f"{len(found) - MAX_PROBLEMS} more wrong rows", "none", str(path)))
    return [] if found else rows


def _read_row(line: str, read: Callable[[str], float | str], before_s: float | None) -> tuple[float, float | str]:
    """Return the row. Raise ValueError with what was expected, like the readers of a cell."""
    cells = line.split(",")
    try:
        time_s = float(cells[0])
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s) or len(cells) != 2:
        raise ValueError(f"two numbers: seconds and {'a bandwidth' if read is _bandwidth else 'a factor'}")
    value = read(cells[1].strip())
    if wrong := _wrong_time(time_s, before_s):
        raise ValueError(wrong)
    return time_s, value


def _factor(fits: Callable[[float], bool], limit: str) -> Callable[[str], float]:
    def read(cell: str) -> float:
        try:
            factor = float(cell)
        except ValueError:
            raise ValueError("two numbers: seconds and a factor") from None
        if not (math.isfinite(factor) and fits(factor)):
            raise ValueError(f"finite numbers, the factor {limit}")
        return factor

    return read


def _bandwidth(cell: str) -> str:
    try:
        parse_bandwidth_or_zero(cell)
    except ValueError as error:
        raise ValueError(str(error).partition("expected ")[2]) from None
    return cell


_FACTORS: Columns = {"factor": _factor(lambda x: x > 0, "above zero")}
_RATES: Columns = {"factor": _factor(lambda x: x >= 0, "0 or above"), "bandwidth": _bandwidth}
