"""`python -m tools.benchmarks.regrouping`: the cost of the copies that let a group survive a loss.

Each step ends with a copy, in memory, of all state that training changes. docs/performance.md has
the numbers.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from simcluster.process.intra_op import use_one_thread
from simcluster.regroup.capture_memory import CaptureMemory
from simcluster.rng import NodeRandom
from simcluster.workloads import WORKLOADS

CASES: list[tuple[str, dict[str, Any]]] = [
    ("mnist_mlp", {}),
    ("mnist_mlp", {"optimizer": "adamw", "learning_rate": 0.001}),
    ("mnist_mlp", {"hidden": 1024, "optimizer": "adamw", "learning_rate": 0.001}),
    ("gpt", {}),
]
TIMES = 30


def measure(name: str, settings: dict[str, Any]) -> tuple[int, float, float]:
    """Return (bytes of a copy, median seconds of a copy, median seconds of a step without
    a copy).
    """
    replica = WORKLOADS[name](**settings).replica(0, 1, 0, TIMES + 3)
    memory = CaptureMemory()
    steps_s = []
    copies_s = []
    memory.begin(replica, NodeRandom(0, "n0"), 1)
    for step, batch in enumerate(replica.batches(), start=1):
        began_s = time.perf_counter()
        replica.apply(replica.loss_and_gradients(batch)[1])
        ended_s = time.perf_counter()
        memory.remember(step, step, 0, {})
        if step > 3:  # the first copies allocate memory that later ones reuse
            steps_s.append(ended_s - began_s)
            copies_s.append(time.perf_counter() - ended_s)
    state = memory.captures[-1].state
    assert state is not None
    return bytes_in(state), statistics.median(copies_s), statistics.median(steps_s)


def bytes_in(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(bytes_in, value.values()))
    return value.nbytes if isinstance(value, torch.Tensor) else 0


def main() -> None:
    use_one_thread()
    for name, settings in CASES:
        size_bytes, copy_s, step_s = measure(name, settings)
        shown = ", ".join(f"{key} {value}" for key, value in settings.items()) or "as it is"
        print(
            f"{name} ({shown}): {size_bytes:,} bytes, {copy_s * 1e6:.0f} us,"
            f" {copy_s / step_s:.1%} of a step of {step_s * 1e3:.2f} ms"
        )


if __name__ == "__main__":
    main()
