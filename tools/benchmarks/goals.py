"""The goals for scale and speed: each number before, now, and its goal.

Each case runs in a fresh process, whose directory has links to the code that is measured and to these benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

from tests.support.browser import CHROMIUM
from tests.support.root import ROOT
from tools.benchmarks import cohort, contention, overhead, pages, starting, sweeping, whole_runs

SIZES, ALL_TO_ALL_SIZES = (8, 64, 256, 1024, 16384), (8, 64, 256, 1024)
PATIENCE_S, LONG_S = 60.0, 150.0
"""CPU time of a case with one checkout, and of those that are several runs: of each process that it starts, too."""

WALL_TIMES = 6
"""The patience for a case on a busy machine, times that of its CPU."""

FAILS = "fails"
COHORT = 131072
EXPLORERS = {5000: 300.0, 100_000: None}
STARTS, PAIRS = 3, 7
"""Rounds of commands, and of simulated runs next to the plain loop."""

MESSAGE_PAIRS = 3


@dataclass(frozen=True)
class Goal:
    """The number *name* is to be at most *most*, if that is set. *before* is that of commit 19453c2, if known."""

    name: str
    unit: str
    most: float | None
    before: float | None = None

    def shown(self, value: float | str) -> str:
        """Return *value* in this unit, or the words that stand for it."""
        if isinstance(value, str):
            return value
        return f"{value:,.0f} {self.unit}" if self.unit in ("us", "ms", "B") else f"{value:,.2f} {self.unit}".strip()

    def row(self, earlier: float | str | None, value: float | str, *, is_paired: bool) -> str:
        """Return the line of the table for *value*; its ratio to *earlier*, if the two are of one run."""
        then = "" if earlier is None else self.shown(earlier)
        ratio = ""
        if is_paired and isinstance(earlier, float) and not isinstance(value, str):
            ratio = f"{value / earlier:.2f}"
        goal, met = "", ""
        if self.most is not None:
            goal, met = self.shown(self.most), "yes" if not isinstance(value, str) and value <= self.most else "**no**"
        return f"| {self.name} | {then} | {self.shown(value)} | {ratio} | {goal} | {met} |"


Measure: TypeAlias = Callable[[], Sequence[float]]


class Case(NamedTuple):
    """The numbers that *measure* finds in a fresh process within *patience_s* of CPU time, with their *goals*.

    *pairs*: the processes with each checkout; their medians count.
    """

    measure: Measure
    goals: tuple[Goal, ...]
    patience_s: float = PATIENCE_S
    pairs: int = 1


def overheads() -> Iterator[float]:
    """Yield the CPU time of a simulated run of the quickstart's batches over that of the plain loop, per algorithm."""
    for found in overhead.ratios(PAIRS):
        yield found.ratio


def starts() -> Iterator[float]:
    runs = ("quickstart, 2 steps", "the same, numerics: none", "the same, on sockets", "the same, on torch")
    names = ("list algorithms", *runs)
    _, listing, *found = starting.measure(STARTS, names)
    yield listing.cpu_s
    for run in found:
        yield run.ratio


def report() -> Iterator[float]:
    """Yield the MB of the report of 1,024 nodes without plotly.js, and its screens if there is a browser."""
    if CHROMIUM is None:
        with tempfile.TemporaryDirectory() as folder:
            yield len(pages.PACKED.sub("", pages.run_page(Path(folder) / "run", 1024)).encode()) / 1e6
    else:
        size_bytes, screens = pages.many_nodes()
        yield size_bytes / 1e6
        yield screens


def explorers(points: int) -> list[float]:
    """Return the time of the slowest change in an explorer of *points*, if there is a browser."""
    if CHROMIUM is None:
        return []
    _, _, changes = pages.exploring(points)
    return [max(changes.values())]


def cohorts() -> Iterator[float]:
    """Yield CPU time, GB, bytes per idle worker, and wall over virtual time of many workers, few training at once."""
    run = cohort.measure(COHORT, 100, real=False)
    yield run["cpu_s"]
    yield run["peak_bytes"] / 1e9
    # Two rounds: of 100, each called worker's part would count.
    yield cohort.idle_bytes(cohort.measured(min(cohort.SIZES), 2), cohort.measured(COHORT, 2))
    yield run["wall_s"] / run["virtual_s"]


def real_cohorts() -> Iterator[float]:
    """Yield CPU time of many workers with real numerics, few training at once, and peak memory over timing only."""
    real = cohort.measured(COHORT, 10, "--real")
    yield real["cpu_s"]
    yield real["peak_bytes"] / cohort.measured(COHORT, 10)["peak_bytes"]


MESSAGES_BEFORE = {
    "sync_ps": {64: 198, 256: 412, 1024: 540},
    "edp": {64: 667, 256: 2900, 1024: 17400},
    "fedbuff": {256: 2479},
    "all_to_all": {},
}
BY_HAND = (64, 256)


def cases() -> dict[str, Case]:
    """Return what is measured together, with the goals of its numbers, by name."""
    found = _network_cases()
    found["overhead"] = Case(
        lambda: list(overheads()),
        tuple(
            Goal(f"`{name}`, batches of 32, over the plain loop (one core)", "", most, before)
            for name, most, before in (("sync_ps", 1.3, 1.73), ("all_reduce_dp", 1.6, 2.71), ("edp", 1.3, 1.96))
        ),
    )
    found["cohort"] = Case(
        lambda: list(cohorts()),
        (
            Goal(f"`fedbuff`, 100 of {COHORT:,} workers, 100 rounds", "s", 60),
            Goal("its peak memory", "GB", 2),
            Goal("memory of an idle worker", "B", None),
            Goal("its wall time over the simulated time", "", None),
        ),
        LONG_S,
    )
    found["real cohort"] = Case(
        lambda: list(real_cohorts()),
        (
            Goal(f"`fedbuff`, 100 of {COHORT:,} workers trained, 10 rounds", "s", 60),
            Goal("its peak memory over that of timing only", "", 1.25),
        ),
        LONG_S,
    )
    for run, most_s in whole_runs.GOALS_S.items():
        found[run] = Case(partial(_whole_run, run), (Goal(whole_runs.RUNS[run].words, "s", most_s),))
    found["starting"] = Case(
        lambda: list(starts()),
        (
            Goal("`simcluster list algorithms`", "s", 0.6, 4.4),
            Goal("the quickstart, two steps, over `import torch`", "", 1.7, 1.74),
            Goal("the same with `numerics: none`", "", 1.7, 2.20),
            Goal("the same with `--backend sockets`, all five nodes", "", None),
            Goal("the same with `--backend torch`, all five nodes", "", None),
        ),
    )
    found["sweep"] = Case(
        lambda: [sweeping.measure_short(1)[0].ratio],
        (Goal(f"a sweep of {sweeping.SHORT_POINTS} short points over its runs", "", 1.3),),
    )
    found["report"] = Case(
        lambda: list(report()),
        (
            Goal("the report of 1,024 nodes, without plotly.js", "MB", 1.5),
            Goal("its height, 1280 x 800", "screens", 6, 124),
        ),
    )
    for points, most_ms in EXPLORERS.items():
        found[f"explorer {points}"] = Case(
            partial(explorers, points),
            (Goal(f"the slowest change in an explorer of {points:,} points, wall time", "ms", most_ms),),
        )
    return found


def _network_cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name, before in MESSAGES_BEFORE.items():
        for size in ALL_TO_ALL_SIZES if name == "all_to_all" else SIZES:
            goal = Goal(f"a message of `{name}`, {size:,} nodes", "us", 40, before.get(size))
            found[f"{name} {size}"] = Case(partial(_messages, name, size), (goal,), pairs=MESSAGE_PAIRS)
    for size in BY_HAND:
        goal = Goal(f"{size} nodes send to all others at once, one by one: a message", "us", None)
        found[f"one by one {size}"] = Case(partial(_one_by_one, size), (goal,))
    return found


def _messages(algorithm: str, size: int) -> list[float]:
    return [contention.all_to_all_us(size) if algorithm == "all_to_all" else contention.message_us(algorithm, size)]


def _one_by_one(size: int) -> list[float]:
    return [contention.one_by_one_us(size)]


def _whole_run(name: str) -> list[float]:
    return [whole_runs.measure(name).cpu_s]


def in_a_process(name: str, patience_s: float, checkout: Path) -> list[float] | str:
    """Return the numbers of case *name* with the library of *checkout*, or in words why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        old = checkout / "simcluster_backends"  # where it was in version 0.1
        backends = old if old.is_dir() else checkout / "backends" / "simcluster_backends"
        (Path(folder) / backends.name).symlink_to(backends)
        for part in ("simcluster", "experiments", "topologies"):
            (Path(folder) / part).symlink_to(checkout / part)
        for programs in ("tests", "tools"):
            (Path(folder) / programs).symlink_to(ROOT / programs)
        command = [sys.executable, "-m", "tools.benchmarks.goals", "--case", name, "--patience", f"{patience_s:.0f}"]
        environment = {**os.environ, "PYTHONPATH": folder}
        most_s = WALL_TIMES * patience_s
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=most_s, check=False
            )
        except subprocess.TimeoutExpired:
            return f"over {most_s:.0f} s of wall time in all"
    if done.returncode == -signal.SIGXCPU:
        return f"over {patience_s:.0f} s in all"
    if done.returncode:
        reason = done.stderr.strip() or f"it ends with {done.returncode}"
        print(f"{name} with {checkout}: {reason.splitlines()[-1]}", file=sys.stderr)
        return FAILS
    return list(json.loads(done.stdout.splitlines()[-1]))


def rows(only: Sequence[str] = (), before: Path | None = None) -> Iterator[str]:
    """Yield the lines of a table; *before* is another checkout, measured in turn with this one.

    What that cannot do at all has an empty cell.
    """
    yield "| | before | now | now / before | goal | met |\n| --- | --- | --- | --- | --- | --- |"
    for name, case in cases().items():
        if only and not any(name.startswith(wanted) for wanted in only):
            continue
        *others, now = _in_turn(name, case, [ROOT] if before is None else [before, ROOT])
        measured = others[0] if others and others[0] != FAILS else []
        for place, goal in enumerate(case.goals):
            if (value := _at(now, place)) is None:
                continue  # such as a height without a browser
            earlier = _at(measured, place) if before is not None else goal.before
            yield goal.row(earlier, value, is_paired=before is not None)


def _in_turn(name: str, case: Case, checkouts: Sequence[Path]) -> list[list[float] | str]:
    """Return the numbers of case *name* with each of *checkouts*, or in words why there are none."""
    found: list[list[list[float] | str]] = [[] for _ in checkouts]
    for _ in range(case.pairs):
        for each, checkout in zip(found, checkouts, strict=True):
            if not (each and isinstance(each[-1], str)):  # it would be the same again
                each.append(in_a_process(name, case.patience_s, checkout))
    return [each[-1] if isinstance(each[-1], str) else [median(of) for of in zip(*each, strict=True)] for each in found]


def _at(measured: Sequence[float] | str, place: int) -> float | str | None:
    if isinstance(measured, str):
        return measured
    return measured[place] if place < len(measured) else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", required=True, help="measure one case here, and print its numbers")
    parser.add_argument("--patience", type=int, required=True, help="the most CPU seconds of each process")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CPU, (asked.patience, resource.RLIM_INFINITY))
    print(json.dumps(list(cases()[asked.case].measure())))


if __name__ == "__main__":
    main()
