"""Real runs over sockets, each replayed in the simulator: how many of each ten ended with the same weights.

python -m tests.lab.replays [--times 10] [--uvloop false]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import simcluster
from simcluster.errors import ReplayDiverged
from simcluster.lab.replays.run import replay

ALGORITHMS: dict[str, Any] = {
    "edp": "edp",
    "ad_psgd": "ad_psgd",
    "async_diloco": {"name": "async_diloco", "interval": 3},
    "wild": {"path": f"{Path(__file__).with_name('wild.py')}:wild"},
    "all_reduce_dp": "all_reduce_dp",
    "halving": {"name": "all_reduce_dp", "schedule": "halving_doubling"},
    "recursive_doubling": {"name": "all_reduce_dp", "schedule": "recursive_doubling"},
    "local_sgd": {"name": "local_sgd", "interval": 3},
    "diloco": {"name": "diloco", "interval": 3},
    "zero": "zero",
    "sync_ps": "sync_ps",
    "d_psgd": "d_psgd",
}
"""By name: first the four that depend on the order of arrival, then those with equal weights whatever it is."""


def experiment(algorithm: Any, steps: int) -> dict[str, Any]:
    return {
        "name": "replay",
        "topology": {"generator": "star", "workers": 3, "device": {"device": "mac-mini-m4", "compute": "auto"}},
        "algorithm": algorithm,
        "workload": {"name": "mnist_mlp", "hidden": 8},
        "stop": {"steps": steps},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--uvloop", choices=["true", "false"], default=None)
    given = parser.parse_args()
    options = {} if given.uvloop is None else {"uvloop": given.uvloop == "true"}
    equal: Counter[str] = Counter()
    different: dict[str, set[str]] = {name: set() for name in ALGORITHMS}
    with tempfile.TemporaryDirectory() as root:
        for name, algorithm in ALGORITHMS.items():
            events = 0
            for time in range(given.times):
                folder = Path(root) / f"{name}-{time}"
                keys = experiment(algorithm, given.steps)
                real = simcluster.run(keys, backend="sockets", out=folder, report=False, options=options)
                different[name].add(real.summary["weights_sha256"])
                try:
                    events += replay(real, report=False).events
                    equal[name] += 1
                except ReplayDiverged as parted:
                    print(f"{name}, run {time}: {parted}", file=sys.stderr)
            print(
                f"{name}: {equal[name]} of {given.times} replays end with the weights of the real run "
                f"({len(different[name])} different ones; {events} events)",
                flush=True,
            )
    return 0 if all(equal[name] == given.times for name in ALGORITHMS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
