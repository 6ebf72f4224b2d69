"""Warn of values in an experiment that are valid but probably mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from simcluster.documents.own_lines import line_that_sums
from simcluster.documents.own_state import path_of
from simcluster.experiment.read.experiment import Experiment
from simcluster.process.own_frames import is_own
from simcluster.runs.doubts import ABSURD, MOST_PLACES, SUMS, Warned, warned
from simcluster.topology import Topology
from simcluster.units import format_bandwidth, format_memory_bandwidth, format_rate

MOST_LINK_BPS = 12.5e12
MOST_MEMORY_BPS = 1e15
MOST_FLOPS_PER_S = 1e18
"""No link is faster than 100 Tbps, and no memory or device exceeds these: about ten times the
fastest of 2026.
"""


def odd_values(plan: Experiment) -> list[Warned]:
    """Return a warning for each value of *plan* that is probably a mistake."""
    found = [warned(ABSURD, text) for text in _too_fast(plan.topology)]
    more = [warned(ABSURD, f"and {len(found) - MOST_PLACES} more such values")] if len(found) > MOST_PLACES else []
    return [*found[:MOST_PLACES], *more, *_sums(plan)]


def _too_fast(cluster: Topology) -> Iterator[str]:
    link_bps = MOST_LINK_BPS, format_bandwidth, "is more than any link has"
    found = [(f"links.{link.a}-{link.b}.bandwidth", link.bandwidth_Bps, *link_bps) for link in cluster.links]
    rate = MOST_FLOPS_PER_S, format_rate, "are more than any device has"
    memory_bps = MOST_MEMORY_BPS, format_memory_bandwidth, "are more than any memory has"
    for name, node in cluster.nodes.items():
        if node.device is not None:
            found.append((f"nodes.{name}", node.device.flops_per_s, *rate))
            found.append((f"nodes.{name}", node.device.memory_bandwidth_Bps, *memory_bps))
    for place, value, most, written, words in found:
        if most < value < math.inf:
            yield f"topology.{place}: {written(value)} {words}, at most {written(most)}"


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
    """Return "file:line" of the user's loss, or of `reduction="sum"` in the workload.

    Return "" if the loss is not in user code.
    """
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
    line = line_that_sums(file, function)
    return f"{file} ({function})" if line is None else f"{file}:{line} ({function})"
