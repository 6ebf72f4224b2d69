"""Real TCP between processes: `run_cluster` is what `--backend sockets` calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcluster.errors import UsageError
from simcluster.process.interrupts import Cancellable, CtrlC
from simcluster.process.platforms import need_unix
from simcluster.process.starting import way_to_start
from simcluster_backends.sockets.wire.keys import OPEN_KEY, generate_key, read_key, write_key

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord

__all__ = [
    "OPEN_KEY",
    "check_options",
    "generate_key",
    "get_ready",
    "read_key",
    "run_cluster",
    "show_report",
    "write_key",
]


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError listing every one of *options* that is invalid for any job."""
    from simcluster_backends.common.options import check
    from simcluster_backends.sockets.launcher.settings import BACKEND, SocketOptions

    check(SocketOptions, options, BACKEND)


def get_ready() -> None:
    """Begin to start the process that forks nodes on this machine, which takes as long as to import torch.

    `run_cluster` does so itself, but waits for it. Do nothing where that would be refused.
    """
    try:
        need_unix("real nodes")
        way_to_start()
    except UsageError:
        return
    from simcluster_backends.sockets.launcher.fork_server import fork_server

    fork_server()


def show_report(job: ClusterJob, report: Path) -> None:
    """Send the *report* of *job*, which has ended, to the coordinator that the job reported to."""
    from simcluster_backends.sockets.launcher.reporting import show_report as show

    show(job, report)


def run_cluster(job: ClusterJob) -> RunRecord:
    """Run *job* to its end; none of its processes survives this call, whatever happens.

    If the run fails, its record has `error` set: PeerLost, NodeFailed, NeverFinished or another RunError. Raise
    UsageError, listing every problem of the request, before anything starts; KeyboardInterrupt after everything has
    ended. May be called inside a running event loop, as in a notebook: it then waits for a thread.
    """
    need_unix("real nodes")
    from simcluster_backends.sockets.launcher.launcher import run_job
    from simcluster_backends.sockets.launcher.settings import read_options

    options, key = read_options(job)
    run = Cancellable(run_job(job, options, key))
    with CtrlC(run.cancel):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(run.run())
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run.run()).result()
