"""Values of an experiment that are allowed, and hardly meant: warnings of its run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from simcluster.documents.own_lines import argument_line
from simcluster.documents.own_state import path_of
from simcluster.experiment.read.experiment import Experiment
from simcluster.process.places import is_own
from simcluster.runs.doubts import ABSURD, MOST_PLACES, SUMS, Warned, warned
from simcluster.topology import Topology
from simcluster.units import format_bandwidth, format_memory_bandwidth, format_rate

MOST_LINK_BPS, MOST_MEMORY_BPS, MOST_FLOPS_PER_S = 12.5e12, 1e15, 1e18
"""More than any link (100 Tbps), memory or device has: about ten times the fastest of 2026."""


def odd_values(plan: Experiment) -> list[Warned]:
    """Return a warning for each value of *plan* that is hardly meant."""
    found = [warned(ABSURD, text) for text in _too_fast(plan.topology)]
    more = [warned(ABSURD, f"and {len(found) - MOST_PLACES} more such values")] if len(found) > MOST_PLACES else []
    return [*found[:MOST_PLACES], *more, *_sums(plan)]


def _too_fast(cluster: Topology) -> Iterator[str]:
    limit = format_bandwidth(MOST_LINK_BPS)
    for link in cluster.links:
        if MOST_LINK_BPS < link.bandwidth_Bps < math.inf:
            value = format_bandwidth(link.bandwidth_Bps)
            yield f"topology.links.{link.a}-{link.b}.bandwidth: {value} is more than any link has, at most {limit}"
    for name, node in cluster.nodes.items():
        device = node.device
        if device is None:
            continue
        if MOST_FLOPS_PER_S < device.flops_per_s < math.inf:
            limits = format_rate(device.flops_per_s), format_rate(MOST_FLOPS_PER_S)
            yield f"topology.nodes.{name}: {limits[0]} are more than any device has, at most {limits[1]}"
        if MOST_MEMORY_BPS < device.memory_bandwidth_Bps < math.inf:
            limits = format_memory_bandwidth(device.memory_bandwidth_Bps), format_memory_bandwidth(MOST_MEMORY_BPS)
            yield f"topology.nodes.{name}: {limits[0]} are more than any memory has, at most {limits[1]}"


def _sums(plan: Experiment) -> Iterator[Warned]:
    if not plan.workload.loss_sums:
        return
    at = _loss_place(plan)
    text = (
        f"{at or 'the workload'}: the loss is a sum over the samples of a batch, twice as large for twice the batch, "
        "and averages over ranks take it for a mean: a step is as many times larger as a batch has samples; write "
        'reduction="mean", or divide by the number of samples'
    )
    yield warned(SUMS, text, at=at)


def _loss_place(plan: Experiment) -> str:
    """Return "file:line" of the user's loss: where it asks for a sum, or else where it or its workload is defined."""
    loss: Any = plan.workload.loss_function
    while isinstance(loss, partial):
        loss = loss.func
    code = getattr(loss, "__code__", None)
    if code is not None and is_own(code.co_filename):
        return f"{code.co_filename}:{code.co_firstlineno} ({code.co_name})"
    path = plan.document["workload"].get("path")
    if path is None:
        return ""
    file, function = str(path_of(path)), path.rpartition(":")[2]
    line = argument_line(file, "reduction", "sum", function)
    return f"{file} ({function})" if line is None else f"{file}:{line} ({function})"
