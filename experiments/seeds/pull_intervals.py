"""How often a worker of SmolCluster's EDP pulls: bytes against staleness and loss."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from experiments.papers.frame import Check, Lab, Paper
from experiments.papers.frame.lab import values
from experiments.papers.frame.shelves import DIGITS


def measured(lab: Lab, interval: int) -> tuple[float, float, float]:
    """Return (mean staleness, held-out loss, MB sent) after the same number of steps."""
    run = lab.run(
        topology="smolcluster",
        algorithm={"name": "edp", "pull_interval": interval},
        workload=DIGITS,
        stop={"steps": lab.pick(40, 80)},
    )
    staleness = values(run, "staleness")
    return sum(staleness) / len(staleness), float(run.summary["loss"]), run.summary["bytes_sent"] / 1e6


def measure(lab: Lab) -> Sequence[Check]:
    intervals = lab.pick((1, 10), (1, 4, 10, 20))
    found = {interval: measured(lab, interval) for interval in intervals}
    checks = []
    for index, (name, unit, grows) in enumerate(
        (("mean staleness", "", True), ("held-out loss", "", True), ("bytes sent", " MB", False))
    ):
        row = [each[index] for each in found.values()]
        told = ", ".join(f"{interval}: {value:.3g}{unit}" for interval, value in zip(intervals, row, strict=True))
        ordered = all((a < b) is grows for a, b in pairwise(row))
        checks.append(Check(f"{name} by steps between pulls", "grows" if grows else "falls", told, ordered))
    return checks


PAPER = Paper(
    title="Steps between two pulls",
    citation="SmolCluster 2026. README, EDP Configuration Details and Training Issues "
    "(github.com/YuvrajSingh-mist/smolcluster)",
    claim="Workers pull the latest weights every 10 steps; against staleness, decrease the interval.",
    setting="`edp` on the seed's own shelf, its network for digits; a pull every 1 to 20 steps, equal numbers of "
    "steps.",
    expected="With a longer interval staleness and loss grow, and bytes fall.",
    measure=measure,
)
