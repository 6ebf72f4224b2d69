"""How long to train alone between two averages: long where data are alike, and where they differ it depends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments.papers.frame import Check, Lab, Paper, star
from experiments.papers.frame.apart import curvatures_and_centres

APART = Path(__file__).parent.parent / "frame" / "apart.py"
DEVICE = {"flops": "1000 PFLOP/s", "profile": {"mnist_mlp/gradient": "2 ms"}}
ALIKE: Mapping[str, Any] = {"partition": "iid"}


def seconds_to_target(lab: Lab, data: Mapping[str, Any], latency: str, intervals: Sequence[int]) -> list[float]:
    """For each interval H, when the held-out loss has come down to 0.5 (in short, 0.9); infinity where it never is.

    A step takes 2 ms, a round around the ring of eight 28 latencies, and little else.
    """
    done = lab.sweep(
        {
            "topology": {
                "generator": "star",
                "workers": 8,
                "bandwidth": "1 TB/s",
                "latency": latency,
                "device": DEVICE,
            },
            "algorithm": {"name": "local_sgd"},
            "workload": {
                "name": "mnist_mlp",
                "hidden": 16,
                "batch_size": lab.pick(8, 16),
                "learning_rate": 0.1,
                **data,
            },
            "stop": {"steps": lab.pick(48, 192)},
            "evaluate_every": lab.pick(4, 2),
        },
        {"algorithm.interval": list(intervals)},
        target={"loss": lab.pick(0.9, 0.5)},
    )
    return [float(seconds) for seconds in done.table["time_to_target_s"].fillna(np.inf)]


def fixed_point(ranks: int, size: int, eta: float, interval: int) -> Any:
    """(sum_i (I - (I - eta A_i)^H))^-1 sum_i (I - (I - eta A_i)^H) b_i for diagonal A_i."""
    curvatures, centres = curvatures_and_centres(ranks, size)
    weights = 1 - (1 - eta * curvatures) ** interval
    return ((weights * centres).sum(0) / weights.sum(0)).numpy()


def off_the_formula(lab: Lab, interval: int) -> float:
    """How far local SGD on quadratics of each rank's own ends from the formula."""
    ranks, size, eta = 4, 4, 0.1
    steps = 40 * 8
    run = lab.run(
        topology=star([None] * ranks),
        algorithm={"name": "local_sgd", "interval": interval},
        workload={"path": f"{APART}:bowls", "ranks": ranks, "size": size, "learning_rate": eta},
        stop={"steps": steps},
        evaluate_every=steps,
    )
    return float(np.abs(run.weights()["x"].numpy() - fixed_point(ranks, size, eta, interval)).max())


def told(intervals: Sequence[int], seconds: Sequence[float]) -> str:
    return ", ".join(f"H={each}: {time_s:.3g} s" for each, time_s in zip(intervals, seconds, strict=True))


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    near, far, farther = "5 us", "0.3 ms", "4 ms"
    alike = lab.pick((1, 8), (1, 2, 4, 8, 16))
    found = seconds_to_target(lab, ALIKE, far, alike)
    falling = all(later < sooner for sooner, later in pairwise(found))
    checks.append(Check("alike: the more H the sooner", "every next H is sooner", told(alike, found), falling))

    intervals = lab.pick((1, 4, 16), (1, 2, 4, 8, 16, 32))
    best, apart = {}, {"partition": "dirichlet", "alpha": lab.pick(0.05, 0.1)}
    for latency in lab.pick((near, far), (near, far, farther)):
        found = seconds_to_target(lab, apart, latency, intervals)
        best[latency] = intervals[int(np.argmin(found))]
        if latency == far:
            inside = min(found[1:-1]) < min(found[0], found[-1])
            checks.append(Check("apart: U-shaped", "the best H is neither end", told(intervals, found), inside))
    growing = all(sooner < later for sooner, later in pairwise(best.values()))
    words = ", ".join(f"latency {latency}: H={interval}" for latency, interval in best.items())
    checks.append(Check("apart: the best H grows with the latency", "strictly", words, growing))
    for interval in lab.pick((8,), (1, 4, 8)):
        off = off_the_formula(lab, interval)
        checks.append(
            Check(
                f"where it ends on quadratics, H={interval}",
                "the formula's point, to 1e-9",
                f"off by {off:.1g}",
                off <= 1e-9,
            )
        )
    return checks


PAPER = Paper(
    title="Local SGD: how often to average",
    citation="Stich 2019. Local SGD converges fast and communicates little (ICLR); with Wang and Joshi 2019, "
    "Adaptive communication strategies to achieve the best error-runtime trade-off in local-update SGD (MLSys)",
    claim="If ranks have different data, an intermediate number of steps H between averagings reaches a loss "
    "soonest, and a larger one the more expensive communication is; with longer rounds SGD converges more "
    "slowly and to a worse point. If ranks sample the same data, rare averaging costs few steps.",
    setting="`local_sgd`, eight ranks, digits, dealt alike or by Dirichlet 0.1; a step of 2 ms, an all-reduce of 28 "
    "latencies: 0.005, 0.3 and 4 ms (0.14, 8 and 112 ms). Time until the held-out loss of the mean is 0.5. And "
    "exact: a different quadratic on each rank, where H local steps end in (sum (I - (I - eta A_i)^H))^-1 sum (I "
    "- (I - eta A_i)^H) x_i.",
    expected="Same data: longer rounds are faster, until one round is enough. Different data: a U with a lowest "
    "point that moves to longer rounds as latency grows. The end of the quadratics to 1e-9.",
    measure=measure,
)
