"""`make bench`: the goals for scale and speed, before and now. docs/performance.md explains the numbers.

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
from tools.benchmarks import cohort, contention, goals, messages, overhead, pages, starting, sweeping


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout of this project, measured in turn with this one")
    parser.add_argument("--only", nargs="+", default=[], help="cases whose names begin so, such as edp or starting")
    parser.add_argument("--details", action="store_true", help="measure everything else instead")
    asked = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}; CPU time, medians of paired runs\n", flush=True)
    if asked.details:
        _details()
        return
    began_s = time.perf_counter()
    for line in goals.rows(asked.only, asked.before.resolve() if asked.before is not None else None):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - began_s:.0f} s in all; load {os.getloadavg()[0]:.1f}")


def _details() -> None:
    """Print every other measurement as it comes."""
    print("a simulated run over the same gradients in a plain torch loop")
    for case in overhead.measure():
        print(
            f"  {case.workload}, {case.algorithm}: {case.one_core.ratio:.2f} on one core"
            f" ({case.gradient_ms:.2f} ms a gradient), {case.two_cores:.2f} of the wall time on two"
        )
    print("\none message, sent and received over two idle links")
    for floats in (1, 1024, 100_000):
        print(f"  {4 * floats:>7,} bytes: {messages.per_message_us(floats):.1f} us")
    print("\nwhere that time goes (profiled)")
    for place, share in messages.where_it_goes()[:10]:
        print(f"  {share:>5.0%}  {place}")
    print("\nring all-reduce of 100 MB on a star, wall time a message")
    for result in messages.rings():
        per_message_us = result["wall_s"] / result["messages"] * 1e6
        print(f"  {result['nodes']:>4} nodes: {per_message_us:.1f} us, {result['wall_s']:.1f} s in all")
    print("\nthe same, each message simulated")
    for nodes in (16, 64, 128):
        print(f"  {nodes:>4} nodes: {messages.ring_message_us(nodes):.1f} us")
    print("\na message of a schedule that is computed, without values: CPU time, and that over one as simulated")
    for op, schedule in messages.COMPUTED:
        few_rounds = op == "all_reduce" and schedule != "ring"
        for nodes in (8, 16, 32, 64, 1024, 1536) if few_rounds else (8, 16, 32, 64, 96):
            cost_us, ratio = messages.computed_over_simulated(op, schedule, nodes)
            print(f"  {schedule}, {op}, {nodes:>5} nodes: {cost_us:.1f} us, {ratio:.2f}")
    print(f"\n1,000 flows at once among 64 hosts: {contention.thousand_flows_s():.2f} s")
    print("\na command, and the CPU time of its process over that of `import torch`")
    for start in starting.measure():
        print(f"  {start.name}: {start.ratio:.2f} ({start.cpu_s:.2f} s)")
    swept = sweeping.measure()
    print(
        f"\na sweep of {sweeping.POINTS} points over their bare runs, {swept.b_s / sweeping.POINTS:.2f} s each: "
        f"{swept.ratio:.2f} of the wall time"
    )
    if CHROMIUM is not None:
        print("\npages in a headless browser")
        pages.main()

    sweeping.main()
    cohort.show(max(cohort.SIZES), 10)


if __name__ == "__main__":
    main()
