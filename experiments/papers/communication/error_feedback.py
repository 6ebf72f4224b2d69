"""Compression that loses something must remember what it lost: signs that go nowhere, and one number in a hundred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, exceeds, served, star

VALLEY = f"{Path(__file__).parent.parent / 'frame' / 'valley.py'}:valley"
SIGNS: dict[str, Mapping[str, Any]] = {
    "signs": {"kind": "sign", "scaled": False, "error_feedback": False},
    "scaled signs": {"kind": "sign", "scaled": True, "error_feedback": False},
    "scaled signs with error feedback": {"kind": "sign", "scaled": True, "error_feedback": True},
}
FLOOR = 0.5 * 2.1
"""Of the valley, on the line x1 + x2 = 2.1."""


def lowest(lab: Lab, compression: Mapping[str, Any]) -> float:
    """The loss at the end of the valley's descent, by one worker, which sends all of its gradient to a server."""
    steps = lab.pick(100, 500)  # steps of such a size do not meet x1 = x2, where the gradient is along (1, 1)
    run = lab.run(
        topology=served([None]),
        algorithm={"name": "edp", "server_trains": False, "compression": dict(compression)},
        workload={"path": VALLEY, "learning_rate": lab.pick(0.03, 0.007)},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    return float(run.summary["loss"])


def digits(lab: Lab, compression: Any, steps: int) -> tuple[float, int]:
    """(held-out loss, bytes sent) of four ranks that learn digits."""
    run = lab.run(
        topology=star([None] * 4),
        algorithm={"name": "all_reduce_dp", "compression": compression},
        workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 16, "learning_rate": 0.1},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    return float(run.summary["loss"]), int(run.summary["bytes_sent"])


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for name, compression in SIGNS.items():
        found = lowest(lab, compression)
        if compression["error_feedback"]:
            checks.append(exceeds(f"{name} get below a fifth of that", 0.2 * FLOOR, found))
        else:
            checks.append(Check(name, f"stuck at {FLOOR:g} or above", f"{found:.4g}", found >= FLOOR - 1e-9))
    steps = lab.pick(60, 300)
    dense, whole = digits(lab, "none", steps)
    with_it, small = digits(lab, {"kind": "top_k", "fraction": 0.01}, steps)
    without, _ = digits(lab, {"kind": "top_k", "fraction": 0.01, "error_feedback": False}, steps)
    return [
        *checks,
        exceeds("digits: a tenth above the dense loss, and top-1 % with error feedback", 1.1 * dense, with_it),
        exceeds("digits: the loss without error feedback is above the dense one", without, dense, times=1.1),
        exceeds("digits: bytes, dense against top-1 %", whole, small, times=10),
    ]


PAPER = Paper(
    title="Error feedback",
    citation="Karimireddy, Rebjock, Stich and Jaggi 2019. Error feedback fixes signSGD and other gradient "
    "compression schemes (ICML), counterexample 2; and Stich, Cordonnier and Jaggi 2018, Sparsified SGD with memory "
    "(NeurIPS)",
    claim="Adding the part that compression lost to the next gradient lets SGD along the signs converge; without "
    "it, SGD may not converge, even on a convex function and with any step. Sending only the largest "
    "coordinates, with such a memory, converges like SGD.",
    setting="Signs on f = 0.5 |x1 + x2| + |x1 - x2| from (1, 1.1): the gradient always has the signs (1, -1) or (-1, "
    "1), so x1 + x2 stays 2.1: `edp` with one worker. Top-1 % on digits: `all_reduce_dp` on four ranks, 12,730 "
    "weights, SGD at 0.1.",
    expected="Signs stay above 0.5 * 2.1, with or without their size; with error feedback f falls to near 0. Top-1 % "
    "with error feedback comes near the dense loss at a twentieth of the bytes; without it does not.",
    measure=measure,
)
