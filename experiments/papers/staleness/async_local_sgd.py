"""Nobody waits in local SGD: with outer momentum that does harm, delayed it does less, and without it is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.papers.frame import Check, Lab, Paper, exceeds

SLOWNESS = (1, 2, 4, 8)
METHODS: Mapping[str, Mapping[str, Any]] = {
    "sync": {"name": "diloco"},
    "sync without": {"name": "diloco", "outer_momentum": 0.0},
    "async": {"name": "async_diloco", "dynamic": False, "delay": 1},
    "async without": {"name": "async_diloco", "dynamic": False, "delay": 1, "outer_momentum": 0.0},
    "delayed": {"name": "async_diloco"},
}
"""Nesterov's momentum at every outer step, or none; and the paper's delayed one with dynamic local updates."""


def loss(lab: Lab, method: Mapping[str, Any]) -> float:
    """Held-out, of the server's weights at the end, mean over seeds."""
    steps = 120
    nodes: dict[str, Any] = {f"n{rank}": device(factor) for rank, factor in enumerate(SLOWNESS)}
    links = [{"between": [name, "sw"], "bandwidth": "1 Gbps", "latency": "50 us"} for name in nodes]
    return fmean(
        float(
            lab.run(
                topology={"name": "uneven", "nodes": nodes | {"sw": {"kind": "switch"}}, "links": links},
                algorithm={**method, "interval": 12},
                workload={"name": "mnist_mlp", "hidden": 16, "batch_size": 8, "learning_rate": 0.01},
                stop={"steps": steps},
                evaluate_every=steps,
                seed=seed,
            ).summary["loss"]
        )
        for seed in lab.pick((0,), (0, 1, 2))
    )


def device(factor: int) -> dict[str, Any]:
    return {"flops": "1000 PFLOP/s", "profile": {"mnist_mlp/gradient": f"{2 * factor} ms"}}


def measure(lab: Lab) -> Sequence[Check]:
    found = {name: loss(lab, method) for name, method in METHODS.items()}
    near = found["delayed"] / found["sync"]
    return [
        exceeds(
            "sync: the loss without momentum is above that with it", found["sync without"], found["sync"], times=1.3
        ),
        exceeds("momentum: the loss of async is above that of sync", found["async"], found["sync"], times=1.3),
        exceeds(
            "async: the loss with momentum is above that without", found["async"], found["async without"], times=1.3
        ),
        exceeds(
            "async: the loss without momentum is above that with delayed momentum",
            found["async without"],
            found["delayed"],
        ),
        Check("async with delayed momentum against sync", "at most 1.1 times the loss", f"{near:.3g}", near <= 1.1),
    ]


PAPER = Paper(
    title="Asynchronous local SGD and outer momentum",
    citation="Liu, Chhaparia, Douillard, Kale, Rusu, Shen, Szlam and Ranzato 2024. Asynchronous local-SGD training "
    "for language modeling (arXiv 2401.09135)",
    claim="With an outer Nesterov step at every arrival, asynchronous local SGD is far worse than synchronous for "
    "the same number of updates; without momentum it is better, so the harm comes from momentum along stale "
    "changes. Momentum that waits until all changes have arrived (delayed Nesterov), with fewer steps per round "
    "for slow ranks, makes up for it.",
    setting="`async_diloco` and `diloco`, four ranks of speeds 1, 1/2, 1/4 and 1/8, rounds of 12 of 120 steps, outer "
    "settings 0.7 and 0.9, digits dealt alike, SGD at 0.01: as in the paper, the synchronous runs learn fast "
    "because of outer momentum. At larger rates, or after longer runs, they no longer do: see experiments/LOG.md.",
    expected="Momentum helps the synchronous run and harms the asynchronous one, which is better without; with "
    "delayed momentum it is better than without, and about as good as the synchronous run.",
    measure=measure,
)
