"""1-bit Adam: its bytes, and its time to a loss against Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, agrees
from experiments.papers.frame.shelves import DIGITS

WARM_UP = 20
DEVICE = {"flops": "100 GFLOP/s", "memory_bandwidth": "50 GB/s", "operator_overhead": "10 us"}
ADAM: tuple[dict[str, Any], dict[str, Any]] = ({"name": "all_reduce_dp"}, {**DIGITS, "clip_norm": None})
ONE_BIT = ({"name": "one_bit_adam", "warmup": WARM_UP}, {**DIGITS, "clip_norm": None, "optimizer": "sgd"})


def run(lab: Lab, which: tuple[Mapping[str, Any], Mapping[str, Any]], bandwidth: str, steps: int) -> Any:
    algorithm, workload = which
    return lab.run(
        topology={"generator": "star", "workers": 4, "latency": "100 us", "bandwidth": bandwidth, "device": DEVICE},
        algorithm=dict(algorithm),
        workload=dict(workload),
        stop={"steps": steps},
        evaluate_every=2,
    )


def seconds_to(target: float, done: Any) -> float:
    """Return when the held-out loss is first at most *target*, or infinity."""
    rows = done.metrics[done.metrics["name"] == "eval_loss"]
    times = rows[rows["value"] <= target]["time_s"]
    return float(times.min()) if len(times) else float("inf")


def measure(lab: Lab) -> Sequence[Check]:
    steps, target = 120, 0.4
    checks = []
    for bandwidth, pays in (("10 Mbps", True), ("1 Gbps", False))[: lab.pick(1, 2)]:
        adam, bits = run(lab, ADAM, bandwidth, steps), run(lab, ONE_BIT, bandwidth, steps)
        if not checks:
            warm = run(lab, ONE_BIT, bandwidth, WARM_UP).summary["bytes_sent"]
            per_step = adam.summary["bytes_sent"] / steps
            ratio = per_step / ((bits.summary["bytes_sent"] - warm) / (steps - WARM_UP))
            checks.append(agrees("bytes of a step after the warm-up, Adam over 1-bit", ratio, 32, 1.0))
        gain = seconds_to(target, adam) / seconds_to(target, bits)
        name = f"{bandwidth}: time to a loss of {target:g}, Adam over 1-bit"
        holds = gain > 1.5 if pays else gain < 1.1
        checks.append(Check(name, "above 1.5" if pays else "below 1.1", f"{gain:.3g}", holds))
    return checks


PAPER = Paper(
    title="1-bit Adam's time to a loss",
    citation="Legion 2025. Phase 1.3 progress report, Future Work; 1-bit Adam is by Tang and others 2021 (ICML)",
    claim="1-bit Adam compresses communication 32 times.",
    setting="`one_bit_adam` with 20 steps of warm-up against `all_reduce_dp` with AdamW, four machines around a "
    "switch, digits; time until the held-out loss is 0.4.",
    expected="32 times fewer bytes after the warm-up, to 3 %; the loss 1.5 times as early at 10 Mb/s, and no earlier "
    "at 1 Gb/s.",
    measure=measure,
)
