"""Splits of a model into pipeline stages that make the slowest stage as fast as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from simcluster.errors import UsageError
from simcluster.workloads.layers.layer_costs import LayerCost


def cut_into_stages(
    costs: Sequence[LayerCost],
    stages: int,
    cuts: Sequence[int] | None = None,
    flops_per_s: Sequence[float] | None = None,
    bandwidth_Bps: Sequence[float] | None = None,
) -> list[tuple[int, int]]:
    """Return (first layer, first layer of the next stage) for each of *stages* stages.

    Without *cuts*, balance the stages.

    *flops_per_s* has the speed of each stage, *bandwidth_Bps* that of each link to the next stage;
    None means equal speeds and links that take no time. Raise UsageError if there are fewer layers
    than stages, or if *cuts* are invalid.
    """
    layers = len(costs)
    if layers < stages:
        expected = f"at most {layers} stages, one for each layer of the model"
        raise UsageError("pipeline", f"{stages} stages", expected)
    if cuts is not None:
        bounds = [0, *cuts, layers]
        if len(cuts) != stages - 1 or any(a >= b for a, b in pairwise(bounds)):
            found, expected = str(list(cuts)), f"{stages - 1} rising numbers from 1 to {layers - 1}"
            raise UsageError("cuts", found, f"{expected}: the first layer of each stage except the first")
    else:
        work = tuple(cost.total.flops for cost in costs)
        sizes = tuple(cost.output_bytes for cost in costs)
        speeds = tuple(flops_per_s or [1.0] * stages)
        rates = tuple(bandwidth_Bps or [math.inf] * stages)
        bounds = [0, *balanced(work, sizes, speeds, rates)]
    return list(pairwise(bounds))


@lru_cache(maxsize=64)
def balanced(
    flops: tuple[float, ...], sizes: tuple[int, ...], flops_per_s: tuple[float, ...], bandwidth_Bps: tuple[float, ...]
) -> tuple[int, ...]:
    """Return the ends of the stages that minimise the time of the slowest stage or link.

    A link carries activations one way and gradients of the same size the other way (Narayanan et al. 2019, section
    3.1). Ties go to the least sum of squared stage times, then to the earliest cuts.
    """
    layers, stages = len(flops), len(flops_per_s)
    before = [0.0]
    for work in flops:
        before.append(before[-1] + work)
    # *best* maps *end* to the best (slowest time, sum of squared times, cuts) if the stages so far
    # cover the first *end* layers.
    best: dict[int, tuple[float, float, tuple[int, ...]]] = {0: (0.0, 0.0, ())}
    for stage in range(stages):
        last = stage == stages - 1
        following: dict[int, tuple[float, float, tuple[int, ...]]] = {}
        for end in [layers] if last else range(stage + 1, layers - (stages - 1 - stage) + 1):
            link_s = 0.0 if last else sizes[end - 1] / bandwidth_Bps[stage]
            options = []
            for start, (slowest, squares, cuts) in best.items():
                if start < end:
                    work_s = (before[end] - before[start]) / flops_per_s[stage]
                    options.append((max(slowest, work_s, link_s), squares + work_s**2, (*cuts, end)))
            following[end] = min(options)
        best = following
    return best[layers][2]
