"""`make bench`: the goals for scale and speed, measured with an earlier checkout and with this one.

docs/performance.md explains the numbers.

python -m tools.benchmarks [--before CHECKOUT] [--only CASE ...]
python -m tools.benchmarks --details
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path

from tests.support.browser import CHROMIUM
from tools.benchmarks import cohort, goals, overhead, pages


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout of this project, measured in turn with this one")
    parser.add_argument("--only", nargs="+", default=[], help="cases whose names begin so, such as edp or starting")
    parser.add_argument("--details", action="store_true", help="measure everything else instead")
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}; CPU time, medians of paired runs\n", flush=True)
    if arguments.details:
        _details()
        return
    began_s = time.perf_counter()
    before = arguments.before.resolve() if arguments.before is not None else None
    for line in goals.rows(arguments.only, before):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - began_s:.0f} s in all; load {os.getloadavg()[0]:.1f}")


def _details() -> None:
    """Print the remaining measurements, each as soon as it is made."""
    print("a simulated run over the same gradients in a plain torch loop")
    for case in overhead.measure():
        print(
            f"  {case.workload}, {case.algorithm}: {case.one_core.ratio:.2f} on one core"
            f" ({case.gradient_ms:.2f} ms a gradient), {case.two_cores:.2f} of the wall time on two"
        )
    if CHROMIUM is not None:
        print("\npages in a headless browser")
        pages.main()
    cohort.show(max(cohort.SIZES), 10)


if __name__ == "__main__":
    main()
