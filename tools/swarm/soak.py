"""Trials of many seeds, in one process or several.

A soak counts broken invariants and marks. It resumes where it stopped.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from tools.swarm.marks import Mark, declared, reached
from tools.swarm.shrink import first_difference, shrink
from tools.swarm.telling import describe, headline
from tools.swarm.trial import Verdict, try_seed
from tools.swarm.twice import EVERY, apart, fingerprint

SAVED_EVERY: Final = 50
TWICE_AT_ONCE: Final = 40
"""The number of seeds that one process replays. Its start takes as long as twenty seeds."""
PORTION: Final = 200
"""The number of seeds per report of a process.

A soak that is stopped loses up to this many seeds.
"""
SHRUNK_MOST: Final = 10
"""The limit on the failing seeds that are shrunk, since each takes some seconds."""

Say = Callable[[str], None]


@dataclass
class Totals:
    """The results of the seeds from *first* to *next* - 1.

    *marks* has "kind, way, algorithm" -> count.
    """

    first: int
    next: int
    refused: int = 0
    took_s: float = 0.0
    virtual_s: float = 0.0
    runs: int = 0
    broken: dict[int, list[str]] = field(default_factory=dict)
    otherwise: list[str] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)

    @property
    def seeds(self) -> int:
        return self.next - self.first

    @property
    def missing(self) -> list[Mark]:
        """The declared marks that no seed has reached."""
        return sorted(mark for mark in declared() if not self.marks[", ".join(mark)])

    def add(self, verdict: Verdict) -> None:
        self.next += 1
        self.refused += bool(verdict.refused)
        self.virtual_s += verdict.virtual_s
        self.runs += len(verdict.runs)
        self.marks.update(", ".join(mark) for mark in reached(verdict))
        if verdict.broken:
            self.broken[verdict.case.seed] = sorted(set(verdict.names))

    def join(self, more: Totals) -> None:
        """Add the totals *more*, which begin with the next seed."""
        assert more.first == self.next
        self.next = more.next
        for name in ("refused", "virtual_s", "runs"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.broken |= more.broken
        self.otherwise += more.otherwise
        self.marks += more.marks

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(vars(self), indent=1), encoding="utf-8")
        partial.replace(path)


def saved(path: Path, first: int | None, seeds: int = 0) -> Totals:
    """Return the stored totals to continue, or new totals.

    If *first* is not None, continue the totals in *path* only if they begin at *first*. If it is
    None, continue them unless they have *seeds* seeds already; otherwise begin after their last
    seed.
    """
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        if first is None and content["next"] - content["first"] >= seeds > 0:
            first = content["next"]
        if first in (None, content["first"]):
            content["broken"] = {int(seed): names for seed, names in content["broken"].items()}
            return Totals(**{**content, "marks": Counter(content["marks"])})
    return Totals(first or 0, first or 0)


def soak(totals: Totals, until: int, place: Path, say: Say, file: Path | None, minimal: Path | None) -> None:
    """Try the seeds from the end of *totals* to *until* - 1.

    Write totals to *file*, and shrunk cases to the folder *minimal*.
    """
    again: dict[int, list[str]] = {}
    shrunk = 0
    began_s, before_s = time.monotonic(), totals.took_s
    while totals.next < until:
        seed = totals.next
        verdict = try_seed(seed, place)
        totals.add(verdict)
        if verdict.broken:
            say(headline(verdict))
            if minimal is not None and shrunk < SHRUNK_MOST:
                shrunk += 1
                write_minimal(verdict, place, minimal, say)
        if seed % EVERY == 0:
            again[seed] = fingerprint(verdict)
        if len(again) == TWICE_AT_ONCE or totals.next == until:
            totals.otherwise += list(apart(again))
            again = {}
        totals.took_s = before_s + time.monotonic() - began_s
        if file is not None and (totals.next % SAVED_EVERY == 0 or totals.next == until):
            totals.save(file)


def soak_in_parallel(
    totals: Totals, until: int, place: Path, say: Say, file: Path | None, minimal: Path | None, jobs: int
) -> None:
    """Do the same as `soak` in *jobs* processes.

    Each process tries a portion of the seeds at a time. Report the rate after each portion.
    """
    firsts = range(totals.next, until, PORTION)
    began_s = time.monotonic()
    before_s = totals.took_s
    began_at = totals.next
    one = partial(_portion, until=until, place=place, minimal=minimal)
    with multiprocessing.get_context("fork").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        for part, lines in pool.imap(one, firsts):
            totals.join(part)
            totals.took_s = before_s + time.monotonic() - began_s
            if file is not None:
                totals.save(file)
            rate = (totals.next - began_at) / (time.monotonic() - began_s)
            left_min = (until - totals.next) / rate / 60
            say("\n".join([*lines, f"to seed {totals.next}: {rate:.1f} seeds/s, {left_min:.0f} min left"]))


def _portion(first: int, until: int, place: Path, minimal: Path | None) -> tuple[Totals, list[str]]:
    """Return the totals of the portion of seeds that begins at *first*, and the lines to print for
    it.
    """
    totals, lines = Totals(first, first), list[str]()
    soak(totals, min(first + PORTION, until), place / f"from-{first}", lines.append, None, minimal)
    shutil.rmtree(place / f"from-{first}", ignore_errors=True)
    return totals, lines


def write_minimal(verdict: Verdict, place: Path, folder: Path, say: Say) -> Path:
    """Shrink the case of *verdict*, write it into *folder*, and return its path.

    Report how it differs from the most similar case that passes.
    """
    small = shrink(verdict, place)
    name, how = next((name, how) for name, how in small.verdict.broken if name == verdict.names[0])
    path = folder / f"seed-{verdict.case.seed}.yaml"
    lines = [f"{name}: {' '.join(how.split())[:200]}"]
    if small.passing is not None:
        lines.append(f"first difference: {first_difference(small.verdict, small.passing)}")
    small.verdict.case.write(
        path, "\n".join([*lines, f"found by seed {verdict.case.seed}, in {small.tried} smaller cases"])
    )
    say(f"    {small.verdict.case.command(str(path))}")
    for line in [*describe(small.verdict.case), *lines]:
        say(f"    {line}")
    return path


def summary(totals: Totals) -> list[str]:
    """Return the last lines of a soak's output."""
    counts = Counter(name for names in totals.broken.values() for name in names)
    lines = [f"{count:6}  {name}" for name, count in counts.most_common()] + totals.otherwise
    marks = len(declared())
    lines.append(f"{marks - len(totals.missing)} of {marks} marks reached")
    took_s = totals.took_s or 1.0
    rate = f"{totals.seeds / took_s:.1f} seeds/s, {totals.virtual_s / took_s:.1f} simulated s per s"
    lines.append(
        f"{totals.seeds} seeds, {totals.runs} runs, {totals.refused} refused, "
        f"{len(totals.broken)} break an invariant; {totals.took_s:.0f} s, {rate}"
    )
    return lines
