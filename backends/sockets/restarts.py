"""Runs a job, and again when it was lost, as often as is asked for: what torchrun calls max_restarts.

This file knows jobs, records and which errors are worth another try. It must not know how a run is run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from simcluster.errors import NodeFailed, PeerLost
from simcluster.experiment.job import ClusterJob
from simcluster.results.record import RunRecord

WORTH_IT = (PeerLost, NodeFailed)
"""A node died, or its algorithm raised. What never finishes would not finish again, and what cannot start, cannot."""

log = logging.getLogger("simcluster.sockets")


async def run_again_if_lost(
    job: ClusterJob, max_restarts: int, run_once: Callable[[ClusterJob], Awaitable[RunRecord]]
) -> RunRecord:
    """The record of the first run that ends well, or of the last one; `restarts` in its *extra* tells of the others.

    Each begins where `job.again` says, or at the start. Faults of the plan happen in the first one only.
    """
    earlier: list[dict[str, str]] = []
    faults: list[object] = []
    while True:
        record = await run_once(job)
        faults += record.extra.get("faults", ())
        if record.error is None or not isinstance(record.error, WORTH_IT) or len(earlier) == max_restarts:
            break
        job, place = _again(job)
        earlier.append({"error": f"{type(record.error).__name__}: {record.error}", "begins_again": place})
        log.warning("restart %d of %d, from %s: %s", len(earlier), max_restarts, place, record.error)
    if earlier:
        record.extra["restarts"], record.extra["faults"] = earlier, faults
    return record


def _again(job: ClusterJob) -> tuple[ClusterJob, str]:
    """(the job that goes on from what was kept, where that is in words)."""
    job = replace(job, faults=())
    if job.again is None or (found := job.again()) is None:
        return job, "the start"
    config_json, place = found
    return replace(job, config_json=config_json), place
