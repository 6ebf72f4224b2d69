"""How stiff the springs of elastic averaging may be: the stable region of its round-robin form."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import BOWL, Check, Lab, Paper, star
from experiments.papers.frame.lab import values


def stiffest(eta: float) -> float:
    """Of alpha, on f = x^2/2 with many ranks."""
    return (4 - 2 * eta) / (4 - eta)


def growth(lab: Lab, ranks: int, eta: float, alpha: float, rounds: int) -> float:
    """By how much the swing of a rank's loss grows from the second quarter of the run to the last."""
    run = lab.run(
        topology=star([None] * ranks),
        algorithm={"name": "easgd", "form": "round_robin", "interval": 1, "beta": alpha * ranks},
        workload={"path": BOWL, "learning_rate": eta},
        stop={"steps": rounds},
    )
    losses = values(run, "loss", "n1")
    quarter = len(losses) // 4
    return max(losses[-quarter:]) / max(losses[quarter : 2 * quarter])


def measure(lab: Lab) -> Sequence[Check]:
    ranks, rounds, off = lab.pick((8, 80, 0.05), (16, 200, 0.02))
    asked = [
        (eta, share * stiffest(eta), f"{share:g} of {stiffest(eta):.3f}", share > 1)
        for eta in lab.pick((0.5,), (0.2, 0.5, 1.0, 1.5))
        for share in (1 - off, 1 + off)
    ]
    if lab.full:
        asked += [(1.95, 0.02, "0.02", False), (2.05, 0.02, "0.02", True)]
    checks = []
    for eta, alpha, words, grows in asked:
        found = growth(lab, ranks, eta, alpha, rounds)
        expected = "the loss grows" if grows else "the loss shrinks"
        checks.append(Check(f"eta = {eta:g}, alpha = {words}", expected, f"times {found:.2g}", (found > 1) is grows))
    return checks


PAPER = Paper(
    title="The stable region of elastic averaging",
    citation="Zhang, Choromanska and LeCun 2015. Deep learning with Elastic Averaging SGD (NIPS), section 4",
    claim="In the round-robin scheme, on a quadratic of curvature 1 and with many ranks, elastic averaging is stable "
    "if and only if the rate eta is at most 2 and the spring alpha at most (4 - 2 eta)/(4 - eta): a region without "
    "holes, unlike that of ADMM.",
    setting="`easgd` in its round-robin form: 16 ranks (the tests: 8) meet the centre one after another at every "
    "step, without noise; alpha 2 % below and above its bound (the tests: 5 %), and eta on both sides of 2.",
    expected="Inside the region the swings of the loss shrink, outside they grow.",
    measure=measure,
)
