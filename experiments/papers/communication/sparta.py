"""A few coordinates at a time: how soon every weight has been shared, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from experiments.papers.frame import Check, Lab, Paper, star
from experiments.papers.frame.apart import kicks

DIGITS = {"name": "mnist_mlp", "hidden": 16, "batch_size": 16, "learning_rate": 0.1}
P, NEVER = 0.05, 1e-6
APART = Path(__file__).parent.parent / "frame" / "apart.py"


def shared(lab: Lab, p: float, steps: int, size: int) -> int:
    """How many of *size* coordinates of rank 0 have changed since its first step threw it apart from rank 1."""
    run = lab.run(
        topology=star([None] * 2),
        algorithm={"name": "sparta", "fraction": p},
        workload={"path": f"{APART}:kicked", "ranks": 2, "size": size},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    return int((run.weights()["x"] != kicks(2, size)[0]).sum())


def digits(lab: Lab, p: float, seed: int) -> tuple[float, int]:
    """(held-out loss of rank 0's own model, bytes sent), where ranks have few classes each."""
    steps = lab.pick(60, 150)
    run = lab.run(
        topology=star([None] * 8),
        algorithm={"name": "sparta", "fraction": p},
        workload={**DIGITS, "partition": "dirichlet", "alpha": 0.3},
        stop={"steps": steps},
        evaluate_every=steps,
        seed=seed,
    )
    return float(run.summary["loss"]), int(run.summary["bytes_sent"])


def measure(lab: Lab) -> Sequence[Check]:
    size, checks = 4000, []
    for p, n in ((0.05, 10), (0.005, 40), *lab.pick((), ((0.05, 40), (0.005, 200), (0.001, 1000)))):
        chance = 1 - (1 - p) ** n
        error = 3 * math.sqrt(chance * (1 - chance) / size)
        ours = shared(lab, p, n, size) / size
        name = f"shared, p = {p:g}, n = {n}"
        checks.append(Check(name, f"{chance:.4f} ± {error:.4f}", f"{ours:.4f}", abs(ours - chance) < error))

    seeds = lab.pick((0,), (0, 1))
    alone, sparse, all_of_it = ([digits(lab, p, seed) for seed in seeds] for p in (NEVER, P, 1.0))
    loss = [fmean(loss for loss, _ in runs) for runs in (alone, sparse, all_of_it)]
    traffic = sparse[0][1] / all_of_it[0][1]
    closed = (loss[0] - loss[1]) / (loss[0] - loss[2])
    told = "alone {:.3g}, p = 0.05 {:.3g}, all of it {:.3g}".format(*loss)
    return [
        *checks,
        Check("digits: loss", "sharing all < sharing 5 % < sharing nothing", told, loss[2] < loss[1] < loss[0]),
        Check("digits: of the gap, sharing 5 % closes", "more than half", f"{closed:.0%}", closed > 0.5),
        Check("digits: bytes against sharing all", "below a twelfth", f"1/{1 / traffic:.1f}", traffic < 1 / 12),
    ]


PAPER = Paper(
    title="SPARTA: a few coordinates at a time",
    citation="Beton, Reed, Howes, Cheema and Baioumy 2025. Improving the efficiency of distributed training using "
    "sparse parameter averaging (MCDC workshop, ICLR)",
    claim="Averaging a random fraction p of the weights after every step keeps replicas together at a fraction of "
    "the traffic: after n steps a weight has been shared with probability 1 - (1-p)^n.",
    setting="`sparta`. The law: the first step moves two ranks apart in 4,000 coordinates, and then they learn "
    "nothing; coordinates that change afterwards have been shared. The benefit: digits on eight ranks with few "
    "classes each (Dirichlet 0.3), rank 0's model, with p = 0.05, 1, and one in a million. The paper trains "
    "language models with p from 0.0005 to 0.005 over thousands of steps; a few hundred steps need a larger p.",
    expected="The shares of the law within three standard errors. A loss between that of sharing nothing and of "
    "sharing all, nearer to the latter, at a small part of its traffic.",
    measure=measure,
)
