"""Files of values over time, in simcluster's own columns or in another common form.

columns     a header with a time (`time_s`) and a value (`factor`, `bandwidth`, `bandwidth_Mbps`),
            among others
pensieve    no header; seconds and Mbit/s, separated by blanks
mahimahi    a line for each packet of 1500 bytes that may leave: its time in ms. The last one ends
            the period, after which the file repeats.

A packet of mahimahi has a time and no rate, so packets are counted in windows. The rate of a window
is its bytes over its length: at the end of each window, and of each period, exactly the file's
bytes have left. A window includes its end, since the last packet ends the period. A window lasts
100 ms, since a shorter one would show single packets instead of a rate. In a long file, it lasts
the smallest multiple of 100 ms that makes at most 10,000 windows.
"""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from simcluster.documents.yaml import read_text
from simcluster.errors import Problem, UsageError
from simcluster.units import (
    BANDWIDTHS,
    TIMES,
    Units,
    format_latency,
    parse_bandwidth_or_zero,
    parse_latency,
    write_bandwidth,
)

MAX_ROWS = 10_000
MAX_PROBLEMS = 20
PACKET_BYTES = 1500
WINDOW_NS = 10**8

FORMS = ("columns", "pensieve", "mahimahi")
FORMAT = f"{', '.join(FORMS)}, or columns by name: {{time_ms: COLUMN, bandwidth_kbps: COLUMN}}"
TIME_COLUMNS = {"time_s": 0, "time_ms": -3, "time_us": -6, "time_ns": -9}
"""Name of a column of times -> the power of ten that converts it to seconds."""

Rows: TypeAlias = list[tuple[float, float | str]]
Lines: TypeAlias = Iterator[tuple[int, str]]
Format: TypeAlias = str | Mapping[str, str]
"""One of FORMS, or our column -> the file's: {time_ms: t, bandwidth_kbps: rate}."""


class TraceValue(NamedTuple):
    """A quantity that traces have: its *name*, its *units*, and *parse*, which reads a string.

    *may_be_zero* says whether a factor may be zero.
    """

    name: str
    units: Units
    parse: Callable[[object], float]
    may_be_zero: bool = True

    @property
    def columns(self) -> list[str]:
        return ["factor", *([self.name, *(f"{self.name}_{unit}" for unit in self.units)] if self.units else [])]

    def read(self, column: str, cell: str) -> float | str:
        """Return the value of *cell*: a factor, or a string with a unit.

        Raise ValueError, with what was expected, if it is invalid.
        """
        if column != "factor":
            text = f"{cell} {column.removeprefix(self.name)[1:]}".strip()
            try:
                self.parse(text)
            except ValueError as error:
                raise ValueError(str(error).partition("expected ")[2]) from None
            return text
        if not _is_number(cell):
            raise ValueError("two numbers: seconds and a factor")
        if not (0 <= (factor := float(cell)) < math.inf and (factor or self.may_be_zero)):
            raise ValueError(f"finite numbers, the factor {'0 or above' if self.may_be_zero else 'above zero'}")
        return factor


FACTOR = TraceValue("factor", {}, parse_latency, may_be_zero=False)
BANDWIDTH = TraceValue("bandwidth", BANDWIDTHS, parse_bandwidth_or_zero)
LATENCY = TraceValue("latency", TIMES, parse_latency)


class ValuesFile:
    """The file of a trace at *path*. `read` adds its errors to *problems*.

    `read` sets *period_s* if the file repeats, and *words* if the file is not in simcluster's own
    columns: a description of how it was read. In other columns, times count from the first row.
    """

    def __init__(self, path: Path, value: TraceValue, problems: list[Problem]) -> None:
        self.path = path
        self.value = value
        self.period_s = math.inf
        self.words = ""
        self._problems = problems
        self._wrong = 0

    def read(self, form: Format | None = None) -> Rows:
        """Return the rows (time_s, value), or [] if anything is wrong.

        Without *form*, the first line determines the form.
        """
        try:
            lines = self._lines(read_text(self.path, may_be_pipe=False))
        except UsageError as error:
            self._problems += error.problems
            return []
        first = next(lines, (0, ""))
        if self.value is BANDWIDTH and (form == "mahimahi" or (form is None and first[1].isdecimal())):
            rows = self._packets(chain((first,), lines))
        else:
            rows = self._rows(first, lines, form)
        if self._wrong > MAX_PROBLEMS:
            self._bad(f"{self._wrong - MAX_PROBLEMS} more wrong rows", "none", always=True)
        return [] if self._wrong else rows

    @staticmethod
    def _lines(text: str) -> Lines:
        """Yield the number and the text of each line, except blank lines and comments."""
        for number, line in enumerate(io.StringIO(text, newline=None), start=1):
            if (line := line.strip()) and line[0] != "#":
                yield number, line

    def _bad(self, found: str, expected: str, number: int = 0, *, always: bool = False) -> None:
        self._wrong += 1
        if always or self._wrong <= MAX_PROBLEMS:
            self._problems.append(Problem("trace", found, expected, str(self.path), number or None))

    def _rows(self, first: tuple[int, str], lines: Lines, form: Format | None) -> Rows:
        separator, names = self._columns(first[1], form)
        if not names:
            own = " or ".join(f"time_s,{column}" for column in self.value.columns[:2])
            forms = f", or format: {FORMAT}" if self.value is BANDWIDTH else ""
            self._bad(repr(first[1][:80]), f"the line {own} and rows of two numbers below it{forms}", first[0])
            return []
        rows: Rows = []
        start = None if self.words else Decimal(0)
        for number, line in chain((first,), lines) if self.words.startswith("Pensieve") else lines:
            if len(rows) + self._wrong == MAX_ROWS:
                self._bad(f"{MAX_ROWS + 1 + sum(1 for _ in lines)} rows", f"at most {MAX_ROWS}", always=True)
                return []
            try:
                time, value = self._row(line.split(separator), names)
                start = time if start is None else start
                rows.append((_time_after(float(time - start), rows[-1][0] if rows else None), value))
            except ValueError as error:
                self._bad(repr(line[:80]), str(error), number)
        if not rows and not self._wrong:
            self._bad("no rows", "at least one, at 0 seconds")
        return rows

    def _row(self, cells: list[str], names: list[str]) -> tuple[Decimal, float | str]:
        """Return the time in seconds and the value of a line.

        Raise ValueError, with what was expected, if the line is invalid.
        """
        time, value = (next(name for name in names if name in known) for known in (TIME_COLUMNS, self.value.columns))
        try:
            at = Decimal(cells[names.index(time)])
        except (InvalidOperation, IndexError):
            at = Decimal("nan")
        if len(cells) != len(names) or not math.isfinite(float(at)):
            numbers = f"two numbers: seconds and a {value.partition('_')[0]}"
            raise ValueError(numbers if len(names) == 2 else f"{len(names)} cells, a number at {time}")
        return at.scaleb(TIME_COLUMNS[time]), self.value.read(value, cells[names.index(value)].strip())

    def _columns(self, head: str, form: Format | None) -> tuple[str | None, list[str]]:
        """Return the separator (None for blanks) and our names of the columns in the line *head*.

        The names are [] unless exactly one column is a time, and exactly one a value.
        """
        separator = next((one for one in ",;\t" if one in head), None)
        cells = [cell.strip() for cell in head.split(separator)]
        is_two = self.value is BANDWIDTH and separator in (None, "\t") and [*map(_is_number, cells)] == [True, True]
        if form in FORMS[1:] or (form is None and is_two):
            self.words = "Pensieve's form, seconds and Mbps"
            return None, ["time_s", "bandwidth_Mbps"] if is_two else []
        ours = {theirs: our for our, theirs in form.items()} if isinstance(form, Mapping) else {}
        names = [ours.get(cell, "" if ours else cell) for cell in cells]
        known = [name for name in names if name in TIME_COLUMNS or name in self.value.columns]
        if len(known) != 2 or sum(name in TIME_COLUMNS for name in known) != 1:
            return None, []
        if names not in (["time_s", "factor"], ["time_s", self.value.name]):
            pairs = [(cell, name) for cell, name in zip(cells, names, strict=True) if name in known]
            self.words = ", ".join(cell if cell == name else f"{cell} as {name}" for cell, name in pairs)
        return separator, names

    def _packets(self, lines: Lines) -> Rows:
        """Return (start, rate) of each window with a different rate from the window before."""
        times_ms = array("q", [0])
        for number, line in lines:
            time_ms = int(line) if line.isdecimal() and len(line) < 13 else -1
            if time_ms >= times_ms[-1]:
                times_ms.append(time_ms)
            elif self._wrong <= MAX_ROWS:
                self._bad(repr(line[:80]), f"a whole number of milliseconds, at least {times_ms[-1]}", number)
        if not times_ms[-1] and not self._wrong:
            self._bad("a trace of 0 ms", "a last row above 0 ms")
        if self._wrong:
            return []
        ends_ns = np.array(times_ms)[1:] * 10**6
        end_ns = int(ends_ns[-1])
        window_ns = WINDOW_NS * -(-end_ns // (WINDOW_NS * MAX_ROWS))
        packets = np.bincount(np.maximum(-(-ends_ns // window_ns) - 1, 0)).tolist()
        self.period_s = end_ns / 1e9
        self.words = f"mahimahi's form, packets of {PACKET_BYTES} bytes in windows of {format_latency(window_ns / 1e9)}"
        rows: Rows = []
        for number, count in enumerate(packets):
            start_ns = number * window_ns
            rate_Bps = count * PACKET_BYTES * 10**9 / min(window_ns, end_ns - start_ns)
            text = write_bandwidth(rate_Bps) if count else "0 bps"
            if not rows or rows[-1][1] != text:
                rows.append((start_ns / 1e9, text))
        return rows


def wrong_time(time_s: float, before_s: float | None) -> str:
    """Return the expected time of a row if *time_s* is wrong, else "".

    The first row is at 0 s (*before_s* is None); every later one is after the row above.
    """
    if before_s is None:
        return "0 first: the value at the start of the run" if time_s else ""
    return "" if time_s > before_s else f"a time after {before_s:g} s, that of the row above"


def _time_after(time_s: float, before_s: float | None) -> float:
    if wrong := wrong_time(time_s, before_s):
        raise ValueError(wrong)
    return time_s


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
