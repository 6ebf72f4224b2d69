"""Timed runs of a small shape on small clusters."""

from __future__ import annotations

from typing import Any

from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.request import Request
from simcluster.lm.serving.run import ServingResult, answer_all
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.topology import Device, Topology
from tests.support import clusters

SHAPE = ModelShape("small", 6, 64, 8, 4, 8, 128, 512, True, 2.0)
# Decoding is bound by memory, and a prompt of 20 tokens by FLOPs: 20 x 2 FLOPs per weight of 2 bytes.
DEVICES = {
    "n0": Device("d", 2e9, 1e9, work_overhead_s=30e-6, operator_overhead_s=2e-6),
    "n1": Device("d", 1e9, 5e8, work_overhead_s=50e-6, operator_overhead_s=1e-6),
    "n2": Device("d", 3e9, 2e9, work_overhead_s=10e-6, operator_overhead_s=3e-6),
}


def topology(size: int = 3, latency_s: float = 1e-3) -> Topology:
    return clusters.star(size, 1e7, latency_s, **DEVICES)


def run(
    layout: PlacementLayout, requests: list[Request], cluster: Topology | None = None, **limits: Any
) -> ServingResult:
    """Answer *requests*, which have sizes alone, in the simulator."""
    settings = {"blocks": 10_000, "context": 10_000, "vocabulary": SHAPE.vocabulary, **limits}
    setup = Setup("", SHAPE, "f32", "none", layout, EngineLimits(**settings), False, requests=tuple(requests))
    return answer_all(setup, cluster or topology())
