"""What an epoch costs on more workers, in node-seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, agrees

DIGITS = {"name": "mnist_mlp", "batch_size": 32}
GPT = {"name": "gpt", "batch_size": 64}


def cost_s(lab: Lab, workload: Mapping[str, Any], workers: int, samples: int) -> float:
    """Return the node-seconds of *samples* samples on *workers* Raspberry Pis 5 around a gigabit switch."""
    run = lab.run(
        topology={"generator": "star", "workers": workers, "bandwidth": "941 Mbps", "device": "raspberry-pi-5"},
        algorithm="all_reduce_dp",
        workload=dict(workload),
        stop={"steps": samples // (workers * workload["batch_size"])},
        numerics="none",
    )
    return workers * float(run.summary["elapsed_s"])


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    for name, workload in (("digits", DIGITS), ("GPT", GPT)):
        samples = 40 * 8 * workload["batch_size"]
        alone = cost_s(lab, workload, 1, samples)
        for workers in lab.pick((4,), (2, 4, 8)):
            ratio = cost_s(lab, workload, workers, samples) / alone
            checks.append(agrees(f"{name}: cost on {workers}, over that on one", ratio, workers, 0.2 * workers))
    return checks


WAITS = "messages outweigh computing, and alone there are none: two workers already take longer than one."
PAYS = "N workers need about 1/N of the time where computing outweighs messages."
MISSED = (("digits", 2, WAITS), ("digits", 4, WAITS), ("GPT", 2, PAYS), ("GPT", 4, PAYS), ("GPT", 8, PAYS))

PAPER = Paper(
    title="Cost against workers",
    citation="DDP simulation 2025. Phase 8 distributed training, Integration with Previous Phases",
    claim="Cost is cost_per_worker x world_size. It is read here as: a job costs what it costs on one worker, times "
    "the number of workers.",
    setting="`all_reduce_dp` on 1 to 8 Raspberry Pis 5 around a gigabit switch, equal numbers of "
    "samples: `mnist_mlp`, and the GPT of `experiments/pays.yaml`. Cost is in node-seconds.",
    expected="N times the cost of one worker, to 20 %.",
    measure=measure,
    missed={f"{name}: cost on {workers}, over that on one": why for name, workers, why in MISSED},
)
