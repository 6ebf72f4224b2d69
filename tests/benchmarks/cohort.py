"""Many workers, few of which train at a time: CPU time and memory of a run as the cluster grows.

python -m tests.benchmarks.cohort [--largest N] [--rounds R]

Each size runs in a fresh process, timing only: `fedbuff` with 100 workers at a time, ten steps each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from simcluster.process.memory import peak_rss_bytes

SIZES = (1024, 8192, 32768, 131072)
PLACES, STEPS = 100, 10


def measure(workers: int, rounds: int) -> dict[str, float]:
    """Return what a run costs this process, which must not have run anything before."""
    import simcluster

    star = {"generator": "star", "workers": workers, "bandwidth": "1 Gbps", "latency": "50 us"}
    cohort = {"name": "fedbuff", "concurrency": PLACES, "buffer": PLACES, "server_trains": False}
    plan: dict[str, Any] = {"name": "cohort", "workload": "mnist_mlp", "algorithm": cohort, "topology": star}
    plan |= {"stop": {"steps": STEPS * rounds}, "numerics": "none"}
    began_s = time.process_time()
    with tempfile.TemporaryDirectory() as out:
        run = simcluster.run(plan, out=f"{out}/run", report=False)
    found = {"cpu_s": time.process_time() - began_s, "peak_bytes": peak_rss_bytes()}
    return found | {"virtual_s": run.summary["elapsed_s"], "messages": run.summary["messages_sent"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=max(SIZES), help="the most workers")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each of the places")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.size:
        print(json.dumps(measure(asked.size, asked.rounds)))
        return
    print(f"{PLACES} workers at a time, {asked.rounds} rounds of {STEPS} steps each; ratios to {SIZES[0]:,} workers")
    first: dict[str, float] = {}
    for size in (size for size in SIZES if size <= asked.largest):
        command = [sys.executable, "-m", "tests.benchmarks.cohort", "--size", str(size), "--rounds", str(asked.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found
        print(
            f"{size:>9,} workers: {found['cpu_s']:.1f} CPU s ({found['cpu_s'] / first['cpu_s']:.2f}), "
            f"{found['peak_bytes'] / 1e6:,.0f} MB ({found['peak_bytes'] / first['peak_bytes']:.2f}), "
            f"{found['virtual_s'] / first['virtual_s']!r} of the virtual time",
            flush=True,
        )


if __name__ == "__main__":
    main()
