"""The CPU time of a sweep of short points relative to the same runs without a sweep.

Without a sweep, the runs are made one after the other in one process. A sweep also starts
processes, and writes its table, its report and its explorer.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil

import simcluster
from simcluster.process.intra_op import usable_cores
from tools.benchmarks.timing import Work

POINTS = 200
STEPS = 5


def measure() -> float:
    """Return the CPU time of a sweep of 200 points on all cores, relative to the same runs without
    it.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _runs(folder, 20)  # warm up
        swept_s = _spent_s(lambda: _sweep(folder))
        return swept_s / _spent_s(lambda: _runs(folder, POINTS))


def _spent_s(work: Work) -> float:
    """Return the CPU seconds of *work*, including the processes that it starts."""
    before = _cpu_s()
    work()
    return _cpu_s() - before


def _cpu_s() -> float:
    """Return the CPU time of this process and of all its children, running or ended."""
    own = psutil.Process().cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return float(total)


def _sweep(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        swept = simcluster.sweep(
            "quickstart", {}, sets=[f"stop.steps={STEPS}"], seeds=POINTS, out=Path(out) / "sweep", jobs=usable_cores()
        )
        assert (swept.table["status"] == "done").all()


def _runs(folder: Path, points: int) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        for seed in range(points):
            simcluster.run(
                "quickstart", overrides={"stop.steps": STEPS}, seed=seed, out=Path(out) / str(seed), report=False,
                options={"threads": 1},
            )  # fmt: skip
