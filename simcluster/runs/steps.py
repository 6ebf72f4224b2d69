"""The steps of a run: those of each worker, and the updates of a server that counts in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simcluster.runs.record import NodeRecord, RunRecord, regroups

STALENESS, APPLIED = "staleness", "applied"
"""Metrics that a server records with each update; workers record neither, or only the first."""


class Steps(NamedTuple):
    """The steps per worker, and the *updates* of a server's weights; None if there is no such server, or no
    difference.
    """

    steps: int
    updates: int | None = None


def steps_of(record: RunRecord) -> Steps:
    """Return the last step that a worker recorded, and the last update of a server that has no barrier.

    After re-forming, the step is the standing node's last, made or taken over.
    """
    if regroups(record.nodes):
        node = record.standing
        return Steps(max(node.steps, *(int(row["step"]) for row in node.regroups), 0))
    servers = [node for node in record.nodes if {STALENESS, APPLIED} <= {metric.name for metric in node.metrics}]
    workers = [node for node in record.nodes if node not in servers]
    steps, updates = _last(workers), _last(servers)
    if not steps:  # a server that is alone trains alone
        return Steps(updates)
    return Steps(steps, updates if updates not in (0, steps) else None)


def _last(nodes: Sequence[NodeRecord]) -> int:
    return max((node.steps for node in nodes), default=0)
