"""What writing a run of 500 scalars to a tracker takes: `python -m tools.benchmarks.tracking`, of those installed.

The first run pays for importing the tracker and, in MLflow's case, for making the database; the others are what a
sweep pays a point.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from simcluster.errors import UsageError
from simcluster.lab.tracking import check
from simcluster.lab.tracking.exporting import KINDS
from tests.lab.tracking.tracked import run_of_500

OTHERS = 5


def measure(to: str, folder: Path) -> list[float]:
    """Seconds for each of one and five runs that differ in their seed."""
    found = []
    for seed in range(1 + OTHERS):
        run = run_of_500(folder / f"run-{seed}", seed=seed)
        start_s = time.perf_counter()
        assert run.track(to, str(folder / to)).written == 1
        found.append(time.perf_counter() - start_s)
    return found


def main() -> None:
    for to in KINDS:
        try:
            check(to)
        except UsageError:
            print(f"{to:<12} not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            first_s, *others_s = measure(to, Path(folder))
        print(f"{to:<12} the first run {first_s:5.2f} s, each other {statistics.median(others_s):5.2f} s")


if __name__ == "__main__":
    main()
