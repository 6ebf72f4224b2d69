"""One slow node among many: asynchronous gossip hardly notices, synchronous averaging goes at its pace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.papers.frame import BOWL, Check, Lab, Paper, exceeds, star
from experiments.papers.frame.lab import values

N = 8
BOWL_BYTES, DIGITS_BYTES = 48, 50_920
"""Of six numbers of 8 bytes; of a network of 12,730 of 4 bytes."""


def cluster(slowdown: float, exchange_s: float, model_bytes: int) -> dict[str, Any]:
    """A gradient and its step take 1 s, of the last node *slowdown* times as much; an averaging of two *exchange_s*.

    There and back; half of it latency, half bandwidth.
    """
    stragglers: list[Any] = [None] * (N - 1) + [{"kind": "constant", "factor": slowdown}]
    bandwidth, latency = f"{model_bytes * 4 / exchange_s:.9g} B/s", f"{exchange_s / 8:g} s"
    return star(stragglers, work="500 ms", bandwidth=bandwidth, latency=latency)


def gradients_per_s(lab: Lab, algorithm: str, slowdown: float, exchange_s: float) -> float:
    seconds = lab.pick(40, 300)
    run = lab.run(
        topology=cluster(slowdown, exchange_s, BOWL_BYTES),
        algorithm=algorithm,
        workload={"path": BOWL, "size": BOWL_BYTES // 8},
        stop={"steps": 2 * seconds, "time": f"{seconds} s"},
        evaluate_every=10_000,
    )
    return len(values(run, "loss")) / seconds


def accuracy(lab: Lab, algorithm: str) -> float:
    """Of digits, after a time in which the slow node takes 5 steps."""
    run = lab.run(
        topology=cluster(10, 0.1, DIGITS_BYTES),
        algorithm=algorithm,
        workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 16},
        stop={"steps": 200, "time": "50 s"},
        evaluate_every=10_000,
    )
    return float(run.summary["accuracy"])


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for c in lab.pick((0.5,), (0.1, 0.5)):
        for k in lab.pick((10,), (2, 10, 100)):
            ours, textbook = gradients_per_s(lab, "ad_psgd", k, c), (N - 1 + 1 / k) / (1 + c)
            words = f"at least {textbook:.3g}, at most {N - 1 + 1 / k:.4g}"
            holds = 0.97 * textbook <= ours <= N - 1 + 1 / k
            checks.append(Check(f"AD-PSGD, c = {c:g}, k = {k}: gradients/s", words, f"{ours:.3g}", holds))
    kept = {}
    for name in ("ad_psgd", "d_psgd", "all_reduce_dp"):
        even, uneven = (gradients_per_s(lab, name, k, 0.1) for k in (1, 10))
        kept[name] = uneven / even
    share = "share kept with k = 10"
    checks.append(Check(f"{share}, AD-PSGD", "above 0.85", f"{kept['ad_psgd']:.3f}", kept["ad_psgd"] > 0.85))
    for name, words in (("d_psgd", "D-PSGD"), ("all_reduce_dp", "all-reduce")):
        checks.append(Check(f"{share}, {words}", "below 0.2", f"{kept[name]:.3f}", kept[name] < 0.2))
    if lab.full:
        gossip, all_reduce = (accuracy(lab, name) for name in ("ad_psgd", "all_reduce_dp"))
        checks.append(exceeds("accuracy of digits after 50 s, AD-PSGD above all-reduce", gossip, all_reduce))
    return checks


PAPER = Paper(
    title="AD-PSGD with a straggler",
    citation="Lian, Zhang, Zhang and Liu 2018. Asynchronous Decentralized Parallel Stochastic Gradient Descent "
    "(ICML), section 5",
    claim="With one node k times as slow as the others, asynchronous gossip loses only that one node's work, if "
    "nodes answer while they compute; synchronous averaging runs at that node's pace, by all-reduce or with "
    "neighbours only.",
    setting=" nodes around a switch, overlay a ring; a step takes 1 s of computing, an averaging c s. The number of "
    "gradients of all ranks in 300 s (the tests: 40) for a quadratic in six numbers; the accuracy on handwritten "
    "digits by the same time.",
    expected="AD-PSGD makes at least the (n - 1 + 1/k)/(1 + c) gradients a second of ranks that compute and average "
    "in turn, and at most n - 1 + 1/k, the bound by computing alone (here ranks average while they compute). "
    "Synchronous algorithms keep about 1/k of the work of n nodes, AD-PSGD (n - 1 + 1/k)/n.",
    measure=measure,
)
