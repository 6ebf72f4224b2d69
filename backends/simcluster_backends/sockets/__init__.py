"""Run nodes as processes that talk over real TCP; `--backend sockets` calls `run_cluster`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from simcluster.errors import UsageError
from simcluster.process.interrupts import Cancellable, CtrlC
from simcluster.process.platforms import need_unix
from simcluster.process.starting import way_to_start
from simcluster_backends.common.event_loop import outside_loops
from simcluster_backends.sockets.wire.keys import OPEN_KEY, generate_key, read_key, write_key

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord

__all__ = [
    "OPEN_KEY",
    "generate_key",
    "get_ready",
    "read_key",
    "run_cluster",
    "write_key",
]


def get_ready() -> None:
    """Start the fork server in the background. Its start takes as long as an import of torch.

    Without this call, `run_cluster` starts the server itself, and waits for it. On a system that
    cannot run nodes, do nothing.
    """
    try:
        need_unix("real nodes")
        way_to_start()
    except UsageError:
        return
    from simcluster_backends.sockets.launcher.fork_server import fork_server

    fork_server()


def run_cluster(job: ClusterJob) -> RunRecord:
    """Run *job* to its end; none of its processes survives this call, whatever happens.

    If the run fails, the record's `error` is PeerLost, NodeFailed, NeverFinished or another
    RunError. Raise UsageError with all problems of *job* before anything starts. On Ctrl-C, raise
    KeyboardInterrupt once all processes have ended. If the caller already runs an event loop, as in
    a notebook, the run uses another thread, and this call blocks until it ends.
    """
    need_unix("real nodes")
    from simcluster_backends.sockets.launcher.launcher import run_job
    from simcluster_backends.sockets.launcher.settings import read_options

    options, key = read_options(job)
    run = Cancellable(run_job(job, options, key))
    with CtrlC(run.cancel):
        return outside_loops(lambda: asyncio.run(run.run()))
