"""Below which bandwidth low-rank gradients pay, and above which they cost more than they save."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, exceeds

DENSE: Any = "none"
LOW_RANK: Any = {"kind": "power_sgd", "rank": 2}
DEVICE = {"flops": "100 GFLOP/s", "memory_bandwidth": "50 GB/s", "operator_overhead": "10 us"}


def seconds_to_target(lab: Lab, compression: Any, bandwidths: Sequence[str]) -> tuple[list[float], float]:
    """(when the held-out loss is 0.5 at last, with each bandwidth; bytes sent)."""
    done = lab.sweep(
        {
            "topology": {"generator": "star", "workers": 4, "latency": "20 us", "device": DEVICE},
            "algorithm": {"name": "all_reduce_dp", "compression": compression},
            "workload": {"name": "mnist_mlp", "hidden": 32, "batch_size": 16, "learning_rate": 0.1},
            "stop": {"steps": lab.pick(60, 120)},
            "evaluate_every": lab.pick(4, 1),
        },
        {"topology.bandwidth": list(bandwidths)},
        target={"loss": lab.pick(0.6, 0.5)},
    )
    return [float(each) for each in done.table["time_to_target_s"]], float(done.table["bytes_sent"].iloc[0])


def measure(lab: Lab) -> Sequence[Check]:
    bandwidths = lab.pick(("10 Mbps", "10 Gbps"), ("10 Mbps", "30 Mbps", "100 Mbps", "300 Mbps", "1 Gbps", "10 Gbps"))
    (dense, whole), (small, sent) = (seconds_to_target(lab, kind, bandwidths) for kind in (DENSE, LOW_RANK))
    gains = [a / b for a, b in zip(dense, small, strict=True)]
    told = ", ".join(f"{bandwidth}: {gain:.3g}" for bandwidth, gain in zip(bandwidths, gains, strict=True))
    falling = all(later < sooner for sooner, later in pairwise(gains))
    return [
        exceeds("bytes, dense against rank 2", whole, sent, times=5),
        Check("time to the loss, dense over rank 2", "less gain with every bandwidth", told, falling),
        exceeds("... at the lowest", gains[0], 1, times=2),
        Check("... at the highest", "below 1: a loss", f"{gains[-1]:.3g}", gains[-1] < 1),
    ]


PAPER = Paper(
    title="PowerSGD and the bandwidth at which it stops paying",
    citation="Vogels, Karimireddy and Jaggi 2019. PowerSGD: practical low-rank gradient compression for distributed "
    "optimization (NeurIPS); the crossing as in Agarwal, Wang, Venkataraman and Papailiopoulos 2022, On the utility "
    "of gradient compression in distributed training systems (MLSys)",
    claim="Rank-2 factors of the gradients, with error feedback, reach the dense loss in about as many steps, with "
    "many times fewer bytes, and therefore much earlier on slow networks. On fast networks encoding takes longer "
    "than it saves.",
    setting="`all_reduce_dp` on four ranks, digits, 25,450 weights; 10 us per operator, 100 GFLOP/s, 50 GB/s; "
    "compressing is counted as device work. Time until the held-out loss is 0.5, at 10 Mb/s to 10 Gb/s.",
    expected="A gain of more than two at the lowest bandwidth, which shrinks with every higher one, and a loss at "
    "the highest.",
    measure=measure,
)
