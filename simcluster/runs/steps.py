"""Count the steps of a run per worker, and the updates of a server if their number differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simcluster.runs.record import NodeRecord, RunRecord, regroups

STALENESS, APPLIED = "staleness", "applied"
"""The metrics that a server records with each update; a worker records at most staleness."""


class Steps(NamedTuple):
    """The steps per worker, and the updates of a server's weights.

    *updates* is None if there is no server, or if the server has made one update per step.
    """

    steps: int
    updates: int | None = None


def steps_of(record: RunRecord) -> Steps:
    """Return the last step of any worker, and the last update of a server without a barrier.

    If groups were re-formed, return the last step that the representing node made or took over.
    """
    if regroups(record.nodes):
        node = record.standing
        return Steps(max(node.steps, *(int(row["step"]) for row in node.regroups), 0))
    servers = [node for node in record.nodes if {STALENESS, APPLIED} <= {metric.name for metric in node.metrics}]
    workers = [node for node in record.nodes if node not in servers]
    steps, updates = _last(workers), _last(servers)
    if not steps:  # a server without workers trains by itself: its updates are the steps
        return Steps(updates)
    return Steps(steps, updates if updates not in (0, steps) else None)


def _last(nodes: Sequence[NodeRecord]) -> int:
    return max((node.steps for node in nodes), default=0)
