"""SmolCluster's time-out of 0.1 s: who is late on its own shelf, and what that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, agrees, exceeds
from experiments.papers.frame.lab import values
from experiments.papers.frame.shelves import DIGITS, GPT
from simcluster import Run

TIME_OUT_S = 0.1


def run(lab: Lab, workload: Mapping[str, Any], timeout_s: float | None, steps: int, **more: Any) -> Run:
    algorithm = {"name": "sync_ps", "timeout_s": timeout_s}
    return lab.run(topology="smolcluster", algorithm=algorithm, workload=dict(workload), stop={"steps": steps}, **more)


def measure(lab: Lab) -> Sequence[Check]:
    steps = lab.pick(10, 40)
    waits, leaves = (run(lab, DIGITS, timeout_s, steps) for timeout_s in (None, TIME_OUT_S))
    same = waits.summary["weights_sha256"] == leaves.summary["weights_sha256"]
    late = sum(values(leaves, "late"))
    gpt = {"numerics": "none", "check_memory": False}
    all_of, few = (run(lab, GPT, timeout_s, 20, **gpt) for timeout_s in (None, TIME_OUT_S))
    counted = values(few, "contributions")
    whole = values(all_of, "contributions")
    rates = [sum(found) / done.summary["elapsed_s"] for found, done in ((counted, few), (whole, all_of))]
    return [
        agrees("digits: late gradients", late, 0, 0),
        Check("digits: weights with and without the time-out", "the same bits", "the same" if same else "others", same),
        exceeds("GPT: gradients in a step without the time-out", sum(whole) / len(whole), 4.99),
        Check(
            "GPT: gradients of the five in a step with it",
            "3 at most: those of the Macs",
            f"{sum(counted) / len(counted):.3g}",
            sum(counted) <= 3 * len(counted),
        ),
        exceeds("GPT: gradients of other nodes than the server in a step with it", sum(counted) / len(counted) - 1, 1),
        exceeds("GPT: gradients used per second, with against without", *rates, times=2),
    ]


PAPER = Paper(
    title="SmolCluster's time-out of 0.1 s",
    citation="SmolCluster 2026. README, SyncPS Configuration Details (github.com/YuvrajSingh-mist/smolcluster)",
    claim="The server waits 0.1 s for gradients before it proceeds, so that stragglers do not hold up a step.",
    setting="`sync_ps` on the seed's own shelf, with `timeout_s: 0.1` and without: its network for digits, and its GPT "
    "without numerics.",
    expected="On digits no gradient is late. With the GPT the Pis, which take seconds, are left out of almost every "
    "step, the Macs are not, and more gradients are used per second.",
    measure=measure,
    missed={
        "GPT: gradients of other nodes than the server in a step with it": "0.1 s is less than a Mac's step and its "
        "transfer: after the first step the server trains alone."
    },
)
