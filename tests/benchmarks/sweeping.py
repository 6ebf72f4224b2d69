"""What a sweep takes over its bare runs, made one after the other in one process, at about a second each.

The sweep has its table, its report and its explorer to write as well.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import simcluster
from tests.benchmarks.timing import Ratio, compare, wall_s

POINTS = 10
ROUNDS = 3
SETTINGS = {"stop.steps": 150, "workload.batch_size": 64}


def measure() -> Ratio:
    """Seconds of a sweep of ten seeds with one worker (a), of the ten runs (b), and how many times as long it takes."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(lambda: _sweep(Path(folder)), lambda: _runs(Path(folder)), ROUNDS, wall_s)


def _sweep(folder: Path) -> None:
    sets = [f"{key}={value}" for key, value in SETTINGS.items()]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        swept = simcluster.sweep("quickstart", {}, sets=sets, seeds=POINTS, out=Path(out) / "sweep", jobs=1)
        assert (swept.table["status"] == "done").all()


def _runs(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as out:
        for seed in range(POINTS):
            simcluster.run(
                "quickstart", overrides=SETTINGS, seed=seed, out=Path(out) / str(seed), report=False,
                options={"threads": 1},
            )  # fmt: skip
