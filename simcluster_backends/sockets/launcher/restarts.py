"""Run a job, and again if it is lost, up to a number of restarts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from simcluster.experiment.job import ClusterJob
from simcluster.experiment.restarts import Restarts
from simcluster.runs.record import RunRecord
from simcluster_backends.sockets.launcher.launcher import Launcher
from simcluster_backends.sockets.launcher.reporting import reporting
from simcluster_backends.sockets.launcher.settings import Options


async def run_again_if_lost(
    job: ClusterJob, max_restarts: int, run_once: Callable[[ClusterJob], Awaitable[RunRecord]]
) -> RunRecord:
    """Return the record of the first run that ends well, or of the last: see `simcluster.experiment.restarts`."""
    restarts = Restarts(job, max_restarts)
    while restarts.again(record := await run_once(restarts.job)):
        continue
    return restarts.told(record)


async def run_job(job: ClusterJob, options: Options, key: bytes) -> RunRecord:
    """Run *job*, again if it is lost and *options* allow it.

    Raise UsageError if its rendezvous cannot be listened at, or its configuration is too long.
    """
    async with reporting(job, options) as reporter:
        record = await run_again_if_lost(
            job, options.max_restarts, lambda job: Launcher(job, options, key, reporter).run()
        )
        await reporter.end("" if record.error is None else str(record.error))
        return record
