"""Gossip of which a tenth travels: the same mean, the same loss, at a rate that depends on what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.frame import Check, Lab, Paper, agrees, exceeds, star
from experiments.papers.frame.apart import kicks
from experiments.papers.frame.lab import values

APART = Path(__file__).parent.parent / "frame" / "apart.py"
TENTH: Any = {"kind": "top_k", "fraction": 0.1}
RANKS, SIZE = 5, 40


def agreement(lab: Lab) -> tuple[list[float], float]:
    """(mean squared distance from the mean every so many rounds, how far rank 0 is from the mean of the first step)."""
    rounds = lab.pick(20, 40)
    run = lab.run(
        topology=star([None] * RANKS, latency="1 ms"),
        algorithm={"name": "choco_sgd", "compression": TENTH, "gamma": 0.2, "consensus_every": rounds},
        workload={"path": f"{APART}:kicked", "ranks": RANKS, "size": SIZE},
        stop={"steps": 4 * rounds},
        evaluate_every=4 * rounds,
    )
    distances = np.array([values(run, "consensus", f"n{rank}") for rank in range(RANKS)]).mean(0)
    off = np.abs(run.weights()["x"].numpy() - kicks(RANKS, SIZE).mean(0).numpy()).max()
    return distances.tolist(), float(off)


def learnt(lab: Lab, algorithm: dict[str, Any]) -> tuple[float, int]:
    """(held-out loss of rank 0's own model, bytes sent) on digits that are dealt alike."""
    steps = lab.pick(60, 240)
    run = lab.run(
        topology=star([None] * RANKS),
        algorithm=algorithm,
        workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 16, "learning_rate": 0.1},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    return float(run.summary["loss"]), int(run.summary["bytes_sent"])


def measure(lab: Lab) -> Sequence[Check]:
    distances, off = agreement(lab)
    factors = [later / sooner for sooner, later in pairwise(distances)]
    told = ", ".join(f"times {factor:.2g}" for factor in factors)
    linear = max(factors) < min(0.1, 2 * min(factors))
    dense, whole = learnt(lab, {"name": "d_psgd", "order": "step_then_mix"})
    small, sent = learnt(lab, {"name": "choco_sgd", "compression": TENTH, "gamma": 0.2})
    return [
        Check("squared distance from the mean, look to look", "the same factor, below 0.1", told, linear),
        agrees("where rank 0 ends, from the mean of where all began", off, 0, distances[-1] ** 0.5 * SIZE),
        exceeds("digits: 1.15 times the loss of D-PSGD is above that of CHOCO-SGD", 1.15 * dense, small),
        exceeds("digits: D-PSGD sends more bytes than CHOCO-SGD", whole, sent, times=4.5),
    ]


PAPER = Paper(
    title="Gossip of compressed differences",
    citation="Koloskova, Stich and Jaggi 2019. Decentralized stochastic optimization and gossip algorithms with "
    "compressed communication (ICML)",
    claim="Ranks that send compressed differences from a copy that their neighbours also hold preserve their mean "
    "and converge to it at a linear rate, however coarse the compression, if they average little enough at a "
    "time; and SGD on top learns as with whole models.",
    setting="`choco_sgd` with top-10 % and gamma 0.2 on a ring of five. Agreement: the first step moves the ranks "
    "apart, and then they learn nothing. Digits: SGD at 0.1, against `d_psgd` that steps, then mixes.",
    expected="The distance from the mean falls by the same factor in every stretch of rounds, to the mean of the "
    "initial points. On digits almost the loss of D-PSGD with less than a quarter of its bytes (an index takes "
    "as many as a number).",
    measure=measure,
)
