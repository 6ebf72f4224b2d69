"""A recorded load: CSV or JSON with the columns of a published trace.

Traces written here have the columns of BurstGPT, and latencies.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeAlias

from simcluster.errors import MOST_PROBLEMS, Problem, UsageError
from simcluster.lm.load.answers import AnsweredRequest
from simcluster.lm.load.arrivals import MOST_REQUESTS, OfferedRequest
from simcluster.lm.request import MOST_TOKENS
from simcluster.spelling import nearest

COLUMNS: Final = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
"""The columns that we write."""

LATENCIES: Final = ("TTFT", "TPOT", "E2EL", "Error")
"""Additional columns of a trace that we write, in seconds; empty for a missing value."""

MOST_LINE: Final = 2**14
MOST_BYTES: Final = 2**30
MOST_LIST: Final = 2**24
"""Limits on the characters of a line, on those that are read in all, and on those of a JSON list."""


class TraceForm(NamedTuple):
    """The columns of a published trace, in any order among others: *unit* is that of *time*, or date."""

    name: str
    time: str
    unit: str
    prompt: str
    output: str


_LIKE_VLLM: Final = (("prompt_len", "output_len"), ("input_len", "output_len"), ("prompt_tokens", "output_tokens"),
                     ("prompt_tokens", "completion_tokens"))  # fmt: skip
FORMS: Final = (
    TraceForm("BurstGPT's trace", "Timestamp", "s", "Request tokens", "Response tokens"),
    TraceForm("Azure's trace", "TIMESTAMP", "date", "ContextTokens", "GeneratedTokens"),
    TraceForm("Mooncake's trace", "timestamp", "ms", "input_length", "output_length"),
    TraceForm("Vidur's trace", "arrived_at", "s", "num_prefill_tokens", "num_decode_tokens"),
    *(
        TraceForm("a trace with vLLM's lengths", time, "s", *lengths)
        for lengths in _LIKE_VLLM
        for time in ("arrival_time", "arrival", "timestamp")
    ),
)
_PER_UNIT: Final = {"s": 1, "ms": 1000, "date": 10**9}

_DATE = re.compile(r"(?P<whole>.+?)(?:\.(?P<digits>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class RequestTrace:
    """The *requests* of a trace, the first at 0 s. *without_answer* counts the skipped rows.

    *words* says what was read as what.
    """

    requests: list[OfferedRequest]
    without_answer: int = 0
    words: str = ""


def read_trace(path: str | Path, most: int = MOST_REQUESTS) -> RequestTrace:
    """Return the first *most* requests of the file at *path*.

    Raise UsageError with all problems and their lines. Rows with a response of 0 tokens are
    skipped: the recorded server did not answer these requests.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:  # spreadsheets write a BOM
            return _TraceReader(str(path)).read(file, most)
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise UsageError("--trace", f"{path}: {words}", "a trace in CSV or JSON lines") from None


def written_trace(answers: Iterable[AnsweredRequest], model: str) -> str:
    """Return *answers* as a trace. A load that is read from it has the same completed requests.

    A failed request has a response of 0 tokens, so that readers skip it.
    """
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*COLUMNS, *LATENCIES])
    for one in sorted(answers, key=lambda one: one.arrival_s):
        output = 0 if one.error else one.output_tokens
        latencies = ("", "", "") if one.error else (repr(one.ttft_s), one.tpot_s, repr(one.e2el_s))
        counts = (one.prompt_tokens, output, one.prompt_tokens + output)
        # repr keeps all digits, so that the trace gives exactly the same load.
        rows.writerow([repr(one.arrival_s), model, *counts, "API log", *latencies, one.error])
    return text.getvalue()


class _TraceReader:
    """A reader of the trace at *path*, with the problems found so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.line = 0
        self.place = ""

    def _lines(self, file: TextIO) -> Iterator[str]:
        """Yield the lines of *file*. Raise UsageError if a line or the file is too long."""
        size = 0
        while line := file.readline(MOST_LINE + 1):  # not a whole line, if it is too long
            self.line += 1
            size += len(line)
            if len(line) > MOST_LINE or size > MOST_BYTES:
                limit = f"at most {MOST_LINE:,} characters" if len(line) > MOST_LINE else f"{MOST_BYTES:,} in all"
                raise self._stop(f"{len(line):,} characters or more", limit)
            yield line

    def bad(self, column: str, found: str, expected: str) -> None:
        self.problems.append(Problem(self.place + column, found, expected, self.path, self.line or None))

    def _stop(self, found: str, expected: str) -> UsageError:
        self.bad("line", found, expected)
        return UsageError(self.problems)

    def read(self, file: TextIO, most: int) -> RequestTrace:
        try:
            head, rows = self._table(file)
            form = self._form(head) if not self.problems else None
            found = self._requests(rows, form, most) if form else RequestTrace([])
        except csv.Error as error:
            raise self._stop(str(error), "comma-separated values") from None
        if not self.problems and not found.requests:
            self.bad("rows", f"{found.without_answer} without an answer and no other", "at least one request")
        if self.problems:
            raise UsageError(self.problems)
        return found

    def _table(self, file: TextIO) -> tuple[list[str], Iterator[Row]]:
        """Return the names of the columns, and the rows: of CSV, of JSON lines, or of a JSON list."""
        ahead: bytes = file.buffer.peek(2**10)  # type: ignore[attr-defined]  # a file's buffer is a BufferedReader
        start = ahead.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if start not in (b"[", b"{"):
            rows = csv.reader(self._lines(file))
            head = [name.strip() for name in next(rows, [])]
            return head, (dict(zip(head, row, strict=False)) for row in rows if any(row))
        records = self._listed(file) if start == b"[" else map(self._parsed, filter(str.strip, self._lines(file)))
        first = next(records, {})
        return list(first), chain((first,), records)

    def _parsed(self, text: str) -> Row:
        try:
            return self._checked(json.loads(text), text)
        except (ValueError, RecursionError):
            return self._checked(None, text)

    def _checked(self, record: object, text: str) -> Row:
        """Return *record*, or an empty row if it is no object; then add a problem."""
        if isinstance(record, dict) and record:
            return record
        self.bad("line", repr(text[:80]), "a JSON object, a request")
        return {}

    def _listed(self, file: TextIO) -> Iterator[Row]:
        text = file.read(MOST_LIST + 1)
        if len(text) > MOST_LIST:
            raise self._stop("a longer JSON list", f"at most {MOST_LIST:,} characters, or JSON lines")
        try:
            records = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._stop(f"no JSON: {error}", "a JSON list of objects, or JSON lines") from None
        for number, record in enumerate(records):
            self.place = f"[{number}]."
            yield self._checked(record, f"{record!r:.80}")

    def _form(self, head: list[str]) -> TraceForm | None:
        """Return the form with the columns *head*; note a problem for each missing one of the nearest form."""
        if "conversations" in head:
            self.bad("header", "ShareGPT's conversations, without times and counts of tokens",
                     "a trace, or --rate with --prompt-tokens and --output-tokens")  # fmt: skip
            return None
        form = max(FORMS, key=lambda form: sum(name in head for name in (form.time, form.prompt, form.output)))
        needed = (form.time, form.prompt, form.output)
        if not any(name in head for name in needed):
            known = "; ".join(f"{', '.join(one[1::2])}, {one.output} ({one.name})" for one in FORMS[:5])
            self.bad("header", repr(", ".join(head)[:80]), f"the columns of a trace: {known}")
            return None
        for name in needed:
            if head.count(name) != 1:
                others = [one for one in head if one not in (*COLUMNS, *needed)]
                found = f"no column {name!r}" if name not in head else f"several columns {name!r}"
                expected = f"the columns {', '.join(needed)}"
                self.bad("header", found, f"{expected}; {nearest(name, others)}" if others else expected)
        return None if self.problems else form

    def _requests(self, rows: Iterable[Row], form: TraceForm, most: int) -> RequestTrace:
        requests: list[OfferedRequest] = []
        without_answer = 0
        start: float | None = None
        before: tuple[float, object] = (-math.inf, "")
        for row in rows:
            if len(requests) >= most or len(self.problems) >= MOST_PROBLEMS:
                break
            if not row:
                continue
            time = self._date(row, form.time) if form.unit == "date" else self._number(row, form.time, math.inf)
            prompt = self._tokens(row, form.prompt, 1)
            output = self._tokens(row, form.output, 0)
            if time is None or prompt is None or output is None:
                continue
            if time < before[0]:
                self.bad(form.time, f"{row[form.time]} after {before[1]}", "times in order")
            self._check_total(row, prompt + output)
            before = (time, row[form.time])
            without_answer += not output
            if output:
                start = time if start is None else start  # the first answered request defines 0 s
                requests.append(OfferedRequest((time - start) / _PER_UNIT[form.unit], prompt, output))
        unit = "" if form.unit == "date" else f" in {form.unit}"
        words = (f"{form.name}: {len(requests):,} requests, {form.prompt} as prompt tokens, {form.output} as output "
                 f"tokens, {form.time} as arrivals{unit}, {without_answer:,} without an answer left out")  # fmt: skip
        return RequestTrace(requests, without_answer, words)

    def _check_total(self, row: Row, total: int) -> None:
        if "Total tokens" in row:
            said = self._tokens(row, "Total tokens", 0, 2 * MOST_TOKENS)
            if said is not None and said != total:
                self.bad("Total tokens", str(said), f"{total}, the sum of request and response")

    def _date(self, row: Row, column: str) -> int | None:
        """Return the nanoseconds of a date since 1970, in UTC if it names no zone."""
        text = str(row.get(column) or "").strip()
        found = _DATE.fullmatch(text)
        try:
            since = datetime.fromisoformat(found["whole"] + (found["zone"] or "Z")) - _EPOCH if found else None
        except ValueError:
            since = None
        if found is None or since is None:
            self.bad(column, repr(text[:40]) if text else "nothing", "a date and time: 2023-11-16 18:15:46.68")
            return None
        return since // timedelta(seconds=1) * 10**9 + int((found["digits"] or "").ljust(9, "0"))

    def _number(self, row: Row, column: str, most: float) -> float | None:
        cell = row.get(column)
        text = "" if cell is None else str(cell).strip()
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if 0 <= number <= most and math.isfinite(number):
            return number
        limit = f" and at most {most:,.0f}" if math.isfinite(most) else ""
        self.bad(column, repr(text[:40]) if text else "nothing", f"a number of at least 0{limit}")
        return None

    def _tokens(self, row: Row, column: str, least: int, most: int = MOST_TOKENS) -> int | None:
        number = self._number(row, column, most)
        if number is None or (number.is_integer() and number >= least):
            return None if number is None else int(number)
        self.bad(column, f"{number:g}", f"a whole number from {least} to {most:,}")
        return None
