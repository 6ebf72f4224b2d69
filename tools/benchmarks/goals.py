"""The goals for scale and speed, with the numbers of an earlier checkout and of this one.

Each case runs in a fresh process. Its directory has links to the code to measure and to these
benchmarks.
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

SIZES = (8, 64, 256, 1024, 16384)
ALL_TO_ALL_SIZES = (8, 64, 256, 1024)
PATIENCE_S, LONG_S = 60.0, 150.0
"""Limits on the CPU time of each process of a case: the default, and one for cases of
several runs.
"""

WALL_TIMES = 6
"""The limit on a case's wall time, relative to its CPU time limit. The machine may be busy."""

FAILS = "fails"
COHORT = 131072
EXPLORERS = {5000: 300.0, 100_000: None}
STARTS, PAIRS = 3, 7
"""The number of rounds of commands, and of pairs of a simulated run and the plain loop."""

MESSAGE_PAIRS = 3


@dataclass(frozen=True)
class Goal:
    """A number to measure. Its goal is to be at most *most*; None means that it has no goal."""

    name: str
    unit: str
    most: float | None

    def shown(self, value: float | str) -> str:
        """Return *value* with its unit. Return a text unchanged."""
        if isinstance(value, str):
            return value
        return f"{value:,.0f} {self.unit}" if self.unit in ("us", "ms", "B") else f"{value:,.2f} {self.unit}".strip()

    def row(self, earlier: float | str | None, value: float | str) -> str:
        """Return the row of the table for *value*, with its ratio to *earlier*."""
        then = "" if earlier is None else self.shown(earlier)
        ratio = ""
        if isinstance(earlier, float) and isinstance(value, float):
            ratio = f"{value / earlier:.2f}"
        goal = ""
        met = ""
        if self.most is not None:
            goal = self.shown(self.most)
            met = "yes" if not isinstance(value, str) and value <= self.most else "**no**"
        return f"| {self.name} | {then} | {self.shown(value)} | {ratio} | {goal} | {met} |"


Measure: TypeAlias = Callable[[], Sequence[float]]


class Case(NamedTuple):
    """A measurement that yields one number for each of *goals*.

    *patience_s* limits the CPU time of each process. Each checkout is measured in *pairs*
    processes; the medians count.
    """

    measure: Measure
    goals: tuple[Goal, ...]
    patience_s: float = PATIENCE_S
    pairs: int = 1


def overheads() -> Iterator[float]:
    """Yield the CPU time of a simulated quickstart relative to the plain loop, for each
    algorithm.
    """
    for found in overhead.ratios(PAIRS):
        yield found.ratio


def starts() -> Iterator[float]:
    _, listing, *found = starting.measure(STARTS)
    yield listing.cpu_s
    for run in found:
        yield run.ratio


def report() -> Iterator[float]:
    """Yield the size of a report of 1,024 nodes, in MB without plotly.js, and its height in
    screens.

    The height is omitted if there is no browser.
    """
    if CHROMIUM is None:
        with tempfile.TemporaryDirectory() as folder:
            yield len(pages.PACKED.sub("", pages.run_page(Path(folder) / "run", 1024)).encode()) / 1e6
    else:
        size_bytes, screens = pages.many_nodes()
        yield size_bytes / 1e6
        yield screens


def explorers(points: int) -> list[float]:
    """Return the time in ms of the slowest change in an explorer of *points*.

    The result is empty if there is no browser.
    """
    if CHROMIUM is None:
        return []
    _, _, changes = pages.exploring(points)
    return [max(changes.values())]


def cohorts() -> Iterator[float]:
    """Yield the costs of a run with many workers if few train at a time.

    They are CPU time, memory in GB, bytes per idle worker, and wall time per virtual time.
    """
    run = cohort.measure(COHORT, 100, real=False)
    yield run["cpu_s"]
    yield run["peak_bytes"] / 1e9
    # After two rounds most workers have never trained, so the growth is the memory of idle workers.
    yield cohort.idle_bytes(cohort.measured(min(cohort.SIZES), 2), cohort.measured(COHORT, 2))
    yield run["wall_s"] / run["virtual_s"]


def real_cohorts() -> Iterator[float]:
    """Yield the CPU time of many workers with real numerics, and peak memory relative to timing
    only.
    """
    real = cohort.measured(COHORT, 10, "--real")
    yield real["cpu_s"]
    yield real["peak_bytes"] / cohort.measured(COHORT, 10)["peak_bytes"]


BY_HAND = (64, 256)


def cases() -> dict[str, Case]:
    """Return name -> case. The numbers of one case are measured together."""
    found = _network_cases()
    found["overhead"] = Case(
        lambda: list(overheads()),
        tuple(
            Goal(f"`{name}`, batches of 32, over the plain loop (one core)", "", most)
            for name, most in (("sync_ps", 1.3), ("all_reduce_dp", 1.6), ("edp", 1.3))
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
            Goal("`simcluster list algorithms`", "s", 0.6),
            Goal("the quickstart, two steps, over `import torch`", "", 1.7),
            Goal("the same with `numerics: none`", "", 1.7),
            Goal("the same with `--backend sockets`, all five nodes", "", None),
            Goal("the same with `--backend torch`, all five nodes", "", None),
        ),
    )
    found["sweep"] = Case(
        lambda: [sweeping.measure()],
        (Goal(f"a sweep of {sweeping.POINTS} short points over its runs", "", 1.3),),
    )
    found["report"] = Case(
        lambda: list(report()),
        (
            Goal("the report of 1,024 nodes, without plotly.js", "MB", 1.5),
            Goal("its height, 1280 x 800", "screens", 6),
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
    for name in (*contention.ALGORITHMS, "all_to_all"):
        for size in ALL_TO_ALL_SIZES if name == "all_to_all" else SIZES:
            goal = Goal(f"a message of `{name}`, {size:,} nodes", "us", 40)
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
    """Return the numbers of case *name* with the library of *checkout*, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        backends = checkout / "backends" / "simcluster_backends"
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
    """Yield the lines of the table.

    *before* is another checkout, measured alternately with this one.

    A case that fails with *before* has an empty cell there.
    """
    yield "| | before | now | now / before | goal | met |\n| --- | --- | --- | --- | --- | --- |"
    for name, case in cases().items():
        if only and not any(name.startswith(wanted) for wanted in only):
            continue
        *others, now = _in_turn(name, case, [ROOT] if before is None else [before, ROOT])
        measured = others[0] if others and others[0] != FAILS else []
        for place, goal in enumerate(case.goals):
            if (value := _at(now, place)) is None:
                continue  # a value may be missing, such as a height without a browser
            yield goal.row(_at(measured, place), value)


def _in_turn(name: str, case: Case, checkouts: Sequence[Path]) -> list[list[float] | str]:
    """Return the numbers of case *name* with each of *checkouts*, or why there are none."""
    found: list[list[list[float] | str]] = [[] for _ in checkouts]
    for _ in range(case.pairs):
        for each, checkout in zip(found, checkouts, strict=True):
            if not (each and isinstance(each[-1], str)):  # a case that failed once would fail again
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
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CPU, (arguments.patience, resource.RLIM_INFINITY))
    print(json.dumps(list(cases()[arguments.case].measure())))


if __name__ == "__main__":
    main()
