"""What a sweep takes over its bare runs, made one after the other in one process.

The sweep has its table, its report and its explorer to write as well, and one of short points its processes to start:
`python -m tools.benchmarks.sweeping`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

import simcluster
from simcluster.process.intra_op import usable_cores
from tools.benchmarks.timing import Ratio, Work, compare, wall_s

POINTS, ROUNDS = 10, 3
SETTINGS = {"stop.steps": 150, "workload.batch_size": 64}
SHORT_POINTS, SHORT_SETTINGS = 200, {"stop.steps": 5}


def measure() -> Ratio:
    """Seconds of a sweep of ten seeds with one worker (a), of the ten runs (b), and how many times as long it takes."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(
            lambda: _sweep(Path(folder), POINTS, SETTINGS, 1),
            lambda: _runs(Path(folder), POINTS, SETTINGS),
            ROUNDS,
            wall_s,
        )


def measure_short(rounds: int = ROUNDS) -> tuple[Ratio, Ratio]:
    """Return (CPU time, wall time) of 200 short points on all cores (a) over their bare runs in this process (b), whose
    wall time is divided by the cores.

    The CPU time of the sweep is also that of the processes that it starts.
    """
    cores = usable_cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _runs(folder, 20, SHORT_SETTINGS)
        pairs = []
        for _ in range(rounds):
            sweep = _spent(lambda: _sweep(folder, SHORT_POINTS, SHORT_SETTINGS, cores))
            runs = _spent(lambda: _runs(folder, SHORT_POINTS, SHORT_SETTINGS))
            pairs.append((sweep, (runs[0], runs[1] / cores)))
    found = []
    for which in (0, 1):
        a_s, b_s = [sweep[which] for sweep, _ in pairs], [runs[which] for _, runs in pairs]
        ratio = statistics.median(a / b for a, b in zip(a_s, b_s, strict=True))
        found.append(Ratio(statistics.median(a_s), statistics.median(b_s), ratio))
    return found[0], found[1]


def _spent(work: Work) -> tuple[float, float]:
    """Return the seconds of (CPU, here and in the processes started meanwhile; wall) that *work* took."""
    before, started = _cpu_s(), time.perf_counter()
    work()
    took_s = time.perf_counter() - started
    return _cpu_s() - before, took_s


def _cpu_s() -> float:
    """Return the CPU time of this process, of its children that have ended, and of all those that still run."""
    own = psutil.Process().cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return float(total)


def _sweep(folder: Path, points: int, settings: Mapping[str, int], jobs: int) -> None:
    sets = [f"{key}={value}" for key, value in settings.items()]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        swept = simcluster.sweep("quickstart", {}, sets=sets, seeds=points, out=Path(out) / "sweep", jobs=jobs)
        assert (swept.table["status"] == "done").all()


def _runs(folder: Path, points: int, settings: Mapping[str, int]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        for seed in range(points):
            simcluster.run(
                "quickstart", overrides=dict(settings), seed=seed, out=Path(out) / str(seed), report=False,
                options={"threads": 1},
            )  # fmt: skip


def main() -> None:
    cpu, wall = measure_short()
    print(
        f"{SHORT_POINTS} points of {cpu.b_s / SHORT_POINTS * 1e3:.0f} ms on {usable_cores()} cores over their runs: "
        f"{cpu.ratio:.2f} of the CPU time, {wall.ratio:.2f} of the wall time ({wall.a_s:.1f} s)"
    )


if __name__ == "__main__":
    main()
