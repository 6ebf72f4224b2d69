"""CPU time and memory of a run as the number of workers grows, if only 100 train at a time.

python -m tools.benchmarks.cohort [--largest N] [--rounds R] [--real] [--keep]

Each size runs `fedbuff` in a fresh process; a worker trains for ten steps. By default, runs are
timing only. With --real, each worker trains on four samples in a memory-mapped file. With --keep,
workers keep their models after training, to show the cost of that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from simcluster.process.memory import peak_rss_bytes
from simcluster.workloads import Replica, Workload, sgd

SIZES = (1024, 8192, 32768, 131072)
PLACES = 100
STEPS = 10
SAMPLES = 4
FEATURES = 64
HIDDEN = 1024
"""Samples per worker, numbers per sample, and hidden units. The weights take 270 kB."""

WRITTEN_AT_ONCE = 1024


def write_samples(file: Path, workers: int) -> None:
    """Write the training set of *workers* to *file*, one piece at a time."""
    rng = np.random.default_rng(0)
    with file.open("wb") as out:
        for _ in range(0, workers, WRITTEN_AT_ONCE):
            shape = SAMPLES * min(workers, WRITTEN_AT_ONCE), FEATURES
            out.write(rng.standard_normal(shape, np.float32).tobytes())


def mapped(*, file: str) -> Workload:
    """Return a workload that reads its samples from *file* when it draws them."""
    # Copy on write, since torch requires writable memory.
    inputs = np.memmap(file, np.float32, mode="c").reshape(-1, FEATURES)
    train = torch.from_numpy(inputs), torch.zeros(len(inputs), dtype=torch.long)
    model = partial(_model, FEATURES, HIDDEN)
    return Workload(model=model, loss=nn.functional.cross_entropy, train=train, optimizer=sgd(0.1), batch_size=SAMPLES)


def _model(features: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def measure(workers: int, rounds: int, real: bool) -> dict[str, float]:
    """Return the costs of a run in this process. It must be the first run in this process."""
    import simcluster

    star = {"generator": "star", "workers": workers, "bandwidth": "1 Gbps", "latency": "50 us"}
    cohort = {"name": "fedbuff", "concurrency": PLACES, "buffer": PLACES, "server_trains": False}
    plan: dict[str, Any] = {"name": "cohort", "workload": "mnist_mlp", "algorithm": cohort, "topology": star}
    plan |= {"stop": {"steps": STEPS * rounds}, "numerics": "real" if real else "none"}
    with tempfile.TemporaryDirectory() as out:
        if real:
            write_samples(Path(out) / "inputs", workers)
            plan["workload"] = {"path": f"{__file__}:mapped", "file": f"{out}/inputs"}
        began_s = time.process_time()
        began_wall_s = time.perf_counter()
        run = simcluster.run(plan, out=f"{out}/run", report=False)
        found = {"cpu_s": time.process_time() - began_s, "wall_s": time.perf_counter() - began_wall_s}
    found |= {"peak_bytes": peak_rss_bytes()}
    return found | {"workers": workers, "virtual_s": run.summary["elapsed_s"], "messages": run.summary["messages_sent"]}


def measured(workers: int, rounds: int, *options: str) -> dict[str, float]:
    """Return the costs of a run in a fresh process."""
    command = [sys.executable, "-m", "tools.benchmarks.cohort", "--size", str(workers), "--rounds", str(rounds)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def idle_bytes(small: Mapping[str, float], large: Mapping[str, float]) -> float:
    """Return the memory per idle worker: additional peak memory divided by additional workers.

    Return 0 if both runs have the same size.
    """
    more = large["workers"] - small["workers"]
    return (large["peak_bytes"] - small["peak_bytes"]) / more if more else 0.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=max(SIZES), help="the most workers")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each of the places")
    parser.add_argument("--real", action="store_true", help="train, in place of timing only")
    parser.add_argument("--keep", action="store_true", help="let workers keep their models when they have trained")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.size:
        if arguments.keep:
            Replica.drop_weights = lambda self: None  # type: ignore[method-assign]
        print(json.dumps(measure(arguments.size, arguments.rounds, arguments.real)))
        return
    options = [f"--{name}" for name in ("real", "keep") if vars(arguments)[name]]
    show(arguments.largest, arguments.rounds, *options)


def show(largest: int, rounds: int, *options: str) -> None:
    """Print the costs of one run for each size up to *largest*."""
    print(f"{PLACES} workers at a time, {rounds} rounds of {STEPS} steps each; ratios to {SIZES[0]:,} workers")
    first: dict[str, float] = {}
    for size in (size for size in SIZES if size <= largest):
        found = measured(size, rounds, *options)
        first = first or found
        print(
            f"{size:>9,} workers: {found['cpu_s']:.1f} CPU s ({found['cpu_s'] / first['cpu_s']:.2f}), "
            f"{found['peak_bytes'] / 1e6:,.0f} MB ({found['peak_bytes'] / first['peak_bytes']:.2f}), "
            f"{found['virtual_s'] / first['virtual_s']!r} of the virtual time, "
            f"{idle_bytes(first, found):,.0f} B per idle worker, "
            f"{found['wall_s']:.1f} s of wall time, {found['virtual_s'] / found['wall_s']:.2f} virtual s per s",
            flush=True,
        )


if __name__ == "__main__":
    main()
