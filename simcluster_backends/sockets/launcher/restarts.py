"""Runs a job, and again when it was lost, as often as is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from simcluster.experiment.job import ClusterJob
from simcluster.experiment.restarts import Restarts
from simcluster.runs.record import RunRecord


async def run_again_if_lost(
    job: ClusterJob, max_restarts: int, run_once: Callable[[ClusterJob], Awaitable[RunRecord]]
) -> RunRecord:
    """The record of the first run that ends well, or of the last one: see `simcluster.experiment.restarts`."""
    restarts = Restarts(job, max_restarts)
    while restarts.again(record := await run_once(restarts.job)):
        continue
    return restarts.told(record)
