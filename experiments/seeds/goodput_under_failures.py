"""Goodput under random failures: how often to save."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from experiments.papers.frame import BOWL, Check, Lab, Paper, agrees, star

JOB = f"{Path(__file__).parent.parent / 'papers' / 'frame' / 'failing_job.py'}:failing_job"
SAVE_S, RESTART_S = 10.0, 30.0


def closed_form(interval_s: float, mtbf_s: float) -> float:
    """Return Daly's goodput: work over all time."""
    whole_s = mtbf_s * math.exp(RESTART_S / mtbf_s) * math.expm1((interval_s + SAVE_S) / mtbf_s)
    return interval_s / whole_s


def simulated(lab: Lab, interval_s: float, mtbf_s: float, failures: int) -> float:
    """Return the goodput of a job that about *failures* failures hit."""
    work_s = interval_s * math.ceil(failures * mtbf_s / interval_s)
    job = {"work_s": work_s, "interval_s": interval_s, "save_s": SAVE_S, "restart_s": RESTART_S, "mtbf_s": mtbf_s}
    run = lab.run(topology=star([None]), algorithm={"path": JOB, **job}, workload={"path": BOWL}, stop={"steps": 1})
    return work_s / float(run.summary["elapsed_s"])


def measure(lab: Lab) -> Sequence[Check]:
    failures = lab.pick(500, 2000)
    checks = []
    for mtbf_s in lab.pick((3600.0,), (900.0, 3600.0, 14_400.0)):
        young_s = math.sqrt(2 * SAVE_S * mtbf_s)
        found = {factor: simulated(lab, factor * young_s, mtbf_s, failures) for factor in (0.25, 1.0, 4.0)}
        for factor, goodput in found.items():
            name = f"MTBF {mtbf_s:g} s, a save every {factor * young_s:.0f} s: goodput"
            checks.append(agrees(name, goodput, closed_form(factor * young_s, mtbf_s), 0.01))
        best = max(found, key=found.__getitem__)
        checks.append(
            Check(f"MTBF {mtbf_s:g} s: the best interval", "sqrt(2 x save x MTBF)", f"{best:g} of it", best == 1.0)
        )
    return checks


PAPER = Paper(
    title="Goodput under random failures",
    citation="Daly 2006. A higher order estimate of the optimum checkpoint interval for restart dumps (Future "
    "Generation Computer Systems); with Young 1974",
    claim="The best time between two checkpoints is about sqrt(2 x save x MTBF); the expected time is "
    "M e^(R/M) (e^((interval + save)/M) - 1) per interval.",
    setting="A job in virtual time (`frame/failing_job.py`): exponential failures with a mean of 15 min to 4 h, a "
    "save of 10 s, a restart of 30 s; a quarter of the best interval, the best, and four times that.",
    expected="The goodput of the closed form, to 0.01; the best of the three intervals is Young's.",
    measure=measure,
)
