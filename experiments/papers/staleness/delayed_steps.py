"""How large a step asynchronous SGD survives: staleness shrinks the stable learning rate, by a known factor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.papers.frame import BOWL, Check, Lab, Paper, served
from experiments.papers.frame.lab import values

TAUS = (0, 1, 3, 7)


def bound(tau: int) -> float:
    """x_{t+1} = x_t - eta x_{t-tau} is stable if and only if eta is below this."""
    return 2 * math.sin(math.pi / (2 * (2 * tau + 1)))


def growth(lab: Lab, tau: int, share: float) -> float:
    """By how much the swing of the loss grows from the second quarter of a run to its last."""
    run = lab.run(
        topology=served([None] * (tau + 1)),
        algorithm={"name": "edp", "server_trains": False},
        workload={"path": BOWL, "learning_rate": share * bound(tau)},
        # One per cent off, the swing changes by 2 %, 0.5 %, 0.2 % and 0.1 % an update for tau = 0, 1, 3 and 7.
        stop={"steps": 400 if tau == 0 else 200 if tau < 7 else 300},
    )
    losses = values(run, "loss", "n0")
    quarter = len(losses) // 4
    return max(losses[-quarter:]) / max(losses[quarter : 2 * quarter])


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for tau in lab.pick((1, 3), TAUS):
        below, above = growth(lab, tau, 0.99), growth(lab, tau, 1.01)
        checks += [
            Check(f"tau = {tau}, 0.99 of {bound(tau):.4f}", "the loss shrinks", f"times {below:.2g}", below < 0.7),
            Check(f"tau = {tau}, 1.01 of it", "the loss grows", f"times {above:.2g}", above > 1.4),
        ]
    return checks


PAPER = Paper(
    title="The stable step of delayed SGD",
    citation="Levin and May 1976. A note on difference-delay equations (Theoretical Population Biology); for SGD, "
    "Giladi, Nacson, Hoffer and Soudry 2020, At stability's edge (ICLR)",
    claim="With gradients that are tau updates old, SGD on a quadratic converges if and only if eta L < 2 sin(pi / "
    "(2 (2 tau + 1))): about pi / (2 tau), where fresh gradients allow 2.",
    setting="`edp`, the asynchronous parameter server, with tau + 1 equal workers: every gradient is exactly tau "
    "updates old. f = x^2/2, without noise, eta one per cent below and above the bound.",
    expected="Below the bound the swings of the loss shrink, above it they grow, for every tau.",
    measure=measure,
)
