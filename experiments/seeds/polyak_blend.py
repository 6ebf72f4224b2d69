"""SmolCluster's Polyak blend of 0.5: whether it smooths, and what it does to the loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from experiments.papers.frame import Check, Lab, Paper
from experiments.papers.frame.lab import values
from experiments.papers.frame.shelves import DIGITS, SHELVES


def held_out(lab: Lab, polyak: float) -> list[float]:
    """Return the held-out loss after every second step of the server."""
    run = lab.run(
        topology=SHELVES["gigabit"],
        algorithm={"name": "sync_ps", "pull_interval": 4, "polyak": polyak},
        workload=DIGITS,
        stop={"steps": lab.pick(48, 96)},
        evaluate_every=2,
    )
    return values(run, "eval_loss")


def roughness(losses: Sequence[float]) -> float:
    """Return the mean change from one fall of the loss to the next."""
    falls = [a - b for a, b in pairwise(losses)]
    return sum(abs(a - b) for a, b in pairwise(falls)) / (len(falls) - 1)


def measure(lab: Lab) -> Sequence[Check]:
    replaced, blended = held_out(lab, 1.0), held_out(lab, 0.5)
    rough = [1e3 * roughness(losses) for losses in (blended, replaced)]
    return [
        Check(
            "the loss is smoother with 0.5",
            f"below {rough[1]:.3g} / 1000",
            f"{rough[0]:.3g} / 1000",
            rough[0] < rough[1],
        ),
        Check(
            "the loss at the end with 0.5",
            f"at most {replaced[-1]:.4g}",
            f"{blended[-1]:.4g}",
            blended[-1] <= replaced[-1],
        ),
    ]


WHY = (
    "half of a worker's own weights survive each pull, so gradients are computed ever further from the server's "
    "weights. A running mean of weights smooths what is evaluated; this one moves where gradients are taken."
)

PAPER = Paper(
    title="The Polyak blend of 0.5",
    citation="SmolCluster 2026. README, Training Configuration Details (github.com/YuvrajSingh-mist/smolcluster)",
    claim="Workers blend the server's weights half and half into their own, for smooth updates.",
    setting="`sync_ps`, a pull every 4 steps, the seed's network for digits on its five machines around a gigabit "
    "switch; `polyak: 0.5` against 1, which replaces a worker's weights.",
    expected="The server's held-out loss changes more smoothly, and is no higher at the end.",
    measure=measure,
    missed={
        "the loss is smoother with 0.5": WHY,
        "the loss at the end with 0.5": "the same reason costs loss.",
    },
)
