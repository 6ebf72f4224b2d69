"""Copies of every node's weights after equal steps, and how far they are from their mean: the consensus distance.

The distances are not part of the trace digest: observing weights does not affect the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from simcluster.runs.record import Copy, Metric, NodeRecord, RunRecord

CONSENSUS = "eval_consensus"
"""The metric computed from copies: |x_i - mean|^2 of node i."""


def consensus_metrics(record: RunRecord) -> list[tuple[int, Metric]]:
    """Return (rank, metric) for each step, in order, if every node that ended well has a copy after it.

    Of a step made twice the later copy counts. The mean is over those nodes in rank order, in double precision. Nodes
    with copies of different sizes hold parts of a model, which have no distance.
    """
    nodes = [node for node in record.nodes if node.ended_well] or record.nodes
    by_step = [{copy.step: copy for copy in node.copies} for node in nodes]
    found = []
    for step in sorted(set.intersection(*map(set, by_step))) if by_step else []:
        copies = [copies[step] for copies in by_step]
        if len({copy.size_bytes for copy in copies}) > 1:
            continue
        mean = sum(copy.vector for copy in copies) / len(copies)
        for node, copy in zip(nodes, copies, strict=True):
            distance = float(np.square(copy.vector - mean).sum())
            found.append((node.rank, Metric(copy.time_s + record.began_s, step, node.name, CONSENSUS, distance)))
    return found


def hand_in(record: NodeRecord) -> Iterator[bytes]:
    """Yield the parts of *record* that are too large for a message: its weights, then its copies."""
    yield record.weights or b""
    for copy in record.copies:
        yield copy.values


def told(copies: Sequence[Copy]) -> list[Copy]:
    """Return *copies* without their values, which `hand_in` yields."""
    return [copy._replace(values=b"") for copy in copies]


def put_back(record: NodeRecord, content: bytes) -> NodeRecord:
    """Return *record* with the weights and copies handed in; without them if any are missing."""
    sizes = [copy.size_bytes for copy in record.copies]
    start = len(content) - sum(sizes)
    if start < 0:
        return replace(record, weights=None, copies=[])
    copies, at = [], start
    for copy, size_bytes in zip(record.copies, sizes, strict=True):
        copies.append(copy._replace(values=content[at : at + size_bytes]))
        at += size_bytes
    return replace(record, weights=content[:start] or None, copies=copies)
