"""The transport over torch.distributed: `run_cluster` is what `--backend torch` calls, in each of a run's processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.experiment.job import ClusterJob
    from simcluster.runs.record import RunRecord
    from simcluster_backends.torch.group import Place
    from simcluster_backends.torch.settings import Options

__all__ = ["run_cluster"]

_runs = itertools.count()


def run_cluster(job: ClusterJob) -> RunRecord:
    """Runs *job*: this process's rank of it where RANK, WORLD_SIZE and MASTER_ADDR are set, as torchrun does; else all
    of it, in processes on this machine, of which none is left when this returns or raises.

    Rank 0 returns the record, whose `error` is set if the run failed. Another rank raises WrittenElsewhere when its
    part went well, else the RunError that it ended with. Raises UsageError before anything is started; LaunchFailed if
    the ranks do not come together. May be called where a loop runs, as in a notebook.
    """
    import torch.distributed as dist

    from simcluster.errors import Problem, UsageError

    if not (dist.is_available() and dist.is_gloo_available()):
        raise UsageError(Problem("backend", "torch", "a build of torch that has torch.distributed with gloo"))
    from simcluster_backends.torch.group import place_of
    from simcluster_backends.torch.settings import read_options

    place = place_of(os.environ)
    options = read_options(job, place)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(job, options, place)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run, job, options, place).result()


def _run(job: ClusterJob, options: Options, place: Place | None) -> RunRecord:
    from simcluster.errors import RunError, WrittenElsewhere
    from simcluster_backends.torch.group import Place, PrefixStore, store_of_launcher, store_of_ours
    from simcluster_backends.torch.node import take_part
    from simcluster_backends.torch.starting import LEAVE_S, end, fallen, start_others

    if place is None:
        place = Place(0, len(job.names), loopback=True)
        store = store_of_ours(place, 0, options.start_s)
        with ExitStack() as files:
            processes: list[subprocess.Popen[bytes]] = []
            leave_s = 0.0
            try:
                start_others(job, options, store.port, files, processes)
                outcome = take_part(job, options, place, store, lambda: fallen(job, processes))
                leave_s = LEAVE_S
                if outcome is not None and not isinstance(outcome, RunError) and outcome.extra["lost"]:
                    leave_s = 0.0  # whoever was lost will not leave by itself
            finally:
                end(processes, leave_s)
    else:
        meeting = PrefixStore(f"run {next(_runs)}", store_of_launcher(place, options.start_s))
        outcome = take_part(job, options, place, meeting)
    if isinstance(outcome, RunError):
        raise outcome
    if outcome is None:
        raise WrittenElsewhere(place.rank, job.names[place.rank])
    return outcome
