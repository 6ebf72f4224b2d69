"""Check that the final model's running statistics come from all ranks' batches."""

from __future__ import annotations

from pathlib import Path

from simcluster.algorithms.facts import facts_of
from simcluster.job import NODE_PROGRAM
from simcluster.lab.verify.running import as_json, run_plan
from simcluster.lab.verify.running_mean import SPREAD
from simcluster.lab.verify.subject import Subject
from simcluster.lab.verify.verdict import NotClaimed, expect
from simcluster.runs.summary import LOSS

STEPS = 60
NEAR = 0.75
"""Limit on the distance from rank 0's running mean to the mean of all samples.

It is relative to the distance from the mean of rank 0's own samples to the mean of all samples.
"""

FILE = Path(__file__).parent.parent / "running_mean.py"


def travel(subject: Subject) -> str:
    """Check that rank 0's running mean is near the mean of all ranks' samples."""
    size = subject.middle
    plan = subject.runner.plan(subject.request(size, workload="", steps=STEPS))
    if facts_of(plan.algorithm).running == "none":
        raise NotClaimed("every rank trains on all ranks' batches")
    if size == 1:
        raise NotClaimed("one rank has no other statistics than its own")
    of_experts = "_of_experts" if subject.claim.workload == "mnist_moe" else ""
    workload = as_json({"path": f"{FILE}:running_mean{of_experts}"})
    plan = subject.runner.plan(subject.request(size, workload=workload, steps=STEPS))
    done = run_plan(plan, program=NODE_PROGRAM).ended(f"N = {size}")
    if not done.sent:
        raise NotClaimed("it sends nothing")
    _, loss = done.metrics()[0][LOSS][-1]
    apart = loss**0.5
    own = SPREAD * (1 - 1 / size)
    told = (
        f"N = {size}, {STEPS} steps: rank 0's running mean is {apart:.3g} from that of all samples, its own {own:.3g}"
    )
    return expect(apart <= NEAR * own, told)
