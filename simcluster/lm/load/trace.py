"""A recorded load: a CSV file with the columns of BurstGPT's traces, read, and written with latencies besides."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from simcluster.errors import MOST_PROBLEMS, Problem, UsageError, nearest
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import MOST_REQUESTS, OfferedRequest
from simcluster.lm.request import MOST_TOKENS

COLUMNS: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
NEEDED: Final = ("Timestamp", "Request tokens", "Response tokens")
"""The columns of a trace, in any order, and those that must be there; further ones are ignored."""

LATENCIES: Final = ("TTFT", "TPOT", "E2EL", "Error")
"""The columns that a written trace has besides, in seconds; empty if there is none."""

MOST_LINE: Final = 2**14
MOST_BYTES: Final = 2**30
"""Limits on the characters of a line and on the bytes read of a file."""


@dataclass(frozen=True)
class RequestTrace:
    """The *requests* of a trace, the first at 0 s, and the number of rows *without_answer*, which are left out."""

    requests: list[OfferedRequest]
    without_answer: int


def read_trace(path: str | Path, most: int = MOST_REQUESTS) -> RequestTrace:
    """Return the first *most* requests of the file at *path*. Raise UsageError with all problems, each with its line.

    A response of 0 tokens is a request that the recorded server did not answer.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _TraceReader(str(path), file).read(most)
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise UsageError(Problem("--trace", f"{path}: {words}", "a CSV file with BurstGPT's columns")) from None


def written_trace(answers: Iterable[AnsweredRequest], model: str) -> str:
    """Return *answers* as a trace that gives the same load when it is read; failed ones have no response."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*COLUMNS, *LATENCIES])
    for one in sorted(answers, key=lambda one: one.arrival_s):
        output = 0 if one.error else one.output_tokens
        latencies = ("", "", "") if one.error else (repr(one.ttft_s), one.tpot_s, repr(one.e2el_s))
        counts = (one.prompt_tokens, output, one.prompt_tokens + output)
        rows.writerow([repr(one.arrival_s), model, *counts, "API log", *latencies, one.error])
    return text.getvalue()


class _TraceReader:
    """One *file*, and the problems found so far."""

    def __init__(self, path: str, file: TextIO) -> None:
        self.path, self.problems, self.line = path, list[Problem](), 0
        self._rows = csv.reader(self._lines(file))

    def _lines(self, file: TextIO) -> Iterator[str]:
        """Yield the lines of *file*. Raise UsageError for one too long, and for a file too large."""
        size = 0
        while line := file.readline(MOST_LINE + 1):
            self.line += 1
            size += len(line)
            if len(line) > MOST_LINE or size > MOST_BYTES:
                limit = f"at most {MOST_LINE:,} characters" if len(line) > MOST_LINE else f"{MOST_BYTES:,} in all"
                self.bad("line", f"{len(line):,} characters or more", limit)
                raise UsageError(self.problems)
            yield line

    def bad(self, column: str, found: str, expected: str) -> None:
        self.problems.append(Problem(column, found, expected, self.path, self.line))

    def read(self, most: int) -> RequestTrace:
        try:
            places = self._places(next(self._rows, []))
            found = self._requests(places, most) if places else RequestTrace([], 0)
        except csv.Error as error:
            self.bad("line", str(error), "comma-separated values")
            raise UsageError(self.problems) from None
        if not self.problems and not found.requests:
            self.bad("rows", f"{found.without_answer} without an answer and no other", "at least one request")
        if self.problems:
            raise UsageError(self.problems)
        return found

    def _places(self, head: list[str]) -> dict[str, int]:
        """Return the place of each known column; a problem for each that is needed and missing."""
        names = [name.strip() for name in head]
        for name in NEEDED:
            if names.count(name) != 1:
                others = [one for one in names if one not in COLUMNS]
                found = f"no column {name!r}" if name not in names else f"several columns {name!r}"
                expected = f"the columns {', '.join(NEEDED)}"
                self.bad("header", found, f"{expected}; {nearest(name, others)}" if others else expected)
        return {name: names.index(name) for name in COLUMNS if name in names} if not self.problems else {}

    def _requests(self, places: dict[str, int], most: int) -> RequestTrace:
        requests: list[OfferedRequest] = []
        without_answer, start_s, before_s = 0, math.inf, -math.inf
        for row in self._rows:
            if len(requests) >= most or len(self.problems) >= MOST_PROBLEMS:
                break
            if not any(row):
                continue
            at_s = self._number(row, places, "Timestamp", math.inf)
            prompt = self._tokens(row, places, "Request tokens", 1)
            output = self._tokens(row, places, "Response tokens", 0)
            if at_s is None or prompt is None or output is None:
                continue
            if at_s < before_s:
                self.bad("Timestamp", f"{at_s:g} after {before_s:g}", "times in order")
            self._check_total(row, places, prompt + output)
            before_s = at_s
            without_answer += not output
            if output:
                start_s = min(start_s, at_s)
                requests.append(OfferedRequest(at_s - start_s, prompt, output))
        return RequestTrace(requests, without_answer)

    def _check_total(self, row: list[str], places: dict[str, int], total: int) -> None:
        if "Total tokens" in places:
            said = self._tokens(row, places, "Total tokens", 0, 2 * MOST_TOKENS)
            if said is not None and said != total:
                self.bad("Total tokens", str(said), f"{total}, the sum of request and response")

    def _number(self, row: list[str], places: dict[str, int], column: str, most: float) -> float | None:
        text = row[places[column]].strip() if places[column] < len(row) else ""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if 0 <= number <= most and math.isfinite(number):
            return number
        limit = f" and at most {most:,.0f}" if math.isfinite(most) else ""
        self.bad(column, repr(text[:40]) if text else "nothing", f"a number of at least 0{limit}")
        return None

    def _tokens(
        self, row: list[str], places: dict[str, int], column: str, least: int, most: int = MOST_TOKENS
    ) -> int | None:
        number = self._number(row, places, column, most)
        if number is None or (number.is_integer() and number >= least):
            return None if number is None else int(number)
        self.bad(column, f"{number:g}", f"a whole number from {least} to {most:,}")
        return None
