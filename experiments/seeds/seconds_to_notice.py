"""90 s against 5 s until a silent node counts as lost."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import Check, Lab, Paper, agrees, exceeds, star


def elapsed_s(lab: Lab, dead_s: float | None, steps: int) -> float:
    """Return the seconds of *steps* steps of 2 s on four nodes; one hangs for ever, unless *dead_s* is None."""
    faults = [] if dead_s is None else [{"kind": "hang", "node": "n3", "at": "5500 ms"}]
    run = lab.run(
        topology=star([None] * 4),
        algorithm="all_reduce_dp",
        workload={"name": "mnist_mlp", "hidden": 8},
        stop={"steps": steps},
        faults=faults,
        options={} if dead_s is None else {"dead_s": dead_s},
    )
    return float(run.summary["elapsed_s"])


def measure(lab: Lab) -> Sequence[Check]:
    steps = lab.pick(10, 20)
    none = elapsed_s(lab, None, steps)
    soon = elapsed_s(lab, 5.0, steps)
    late = elapsed_s(lab, 90.0, steps)
    return [
        agrees("steps of the run, noticed after 90 s, minus that after 5 s", late - soon, 85.0, 1e-6, " s"),
        agrees("... after 5 s, minus the run without a failure", soon - none, 5.0, 2.0, " s"),
        exceeds("90 s cost more than half of the whole run", late - none, none / 2, " s"),
    ]


PAPER = Paper(
    title="90 s or 5 s to notice a failure",
    citation="Legion 2025. Phase 1.3 progress report, Performance Targets",
    claim="Heartbeats detect a failed worker within 90 s.",
    setting="`all_reduce_dp` on four nodes with steps of 2 s; one stops answering in the third. The others wait for "
    "it until `dead_s`, 5 s by default, and re-form.",
    expected="The wait is the whole difference: 85 s. After 90 s, one failure costs more than half of the run.",
    measure=measure,
)
