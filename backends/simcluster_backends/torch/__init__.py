"""Run nodes over torch.distributed: `--backend torch` calls `run_cluster` in each process."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord
    from simcluster_backends.torch.group import WorldPlace
    from simcluster_backends.torch.settings import TorchOptions

__all__ = ["run_cluster"]

_runs = itertools.count()


def run_cluster(job: ClusterJob) -> RunRecord:
    """Run *job*, or only this process's rank of it if a launcher has started the process.

    A launcher such as torchrun sets RANK, WORLD_SIZE and MASTER_ADDR. Without a launcher, this
    process is rank 0, and starts the other ranks on this machine. They have ended when this returns
    or raises.

    Rank 0 returns the record; its `error` is set if the run failed. Other ranks raise
    WrittenElsewhere if they ended well, or else their RunError. Raise UsageError before anything
    starts, and LaunchFailed if the ranks do not come together. This may be called inside a running
    event loop, as in a notebook.
    """
    import torch.distributed as dist

    from simcluster.errors import UsageError
    from simcluster.process.platforms import need_unix

    need_unix("real nodes")

    if not (dist.is_available() and dist.is_gloo_available()):
        raise UsageError("backend", "torch", "a build of torch that has torch.distributed with gloo")
    from simcluster_backends.common.event_loop import outside_loops
    from simcluster_backends.torch.group import place_of
    from simcluster_backends.torch.settings import read_options

    place = place_of(os.environ)
    options = read_options(job, place)
    return outside_loops(lambda: _run(job, options, place))


def _run(job: ClusterJob, options: TorchOptions, place: WorldPlace | None) -> RunRecord:
    from simcluster.errors import RunError, WrittenElsewhere
    from simcluster_backends.torch.group import PrefixStore, WorldPlace, store_of_launcher
    from simcluster_backends.torch.node import take_part
    from simcluster_backends.torch.starting import run_here

    if place is None:
        place = WorldPlace(0, len(job.names), loopback=True)
        outcome = run_here(job, options, place)
    else:
        meeting = PrefixStore(f"run {next(_runs)}", store_of_launcher(place, options.start_s))
        outcome = take_part(job, options, place, meeting)
    if isinstance(outcome, RunError):
        raise outcome
    if outcome is None:
        raise WrittenElsewhere(place.rank, job.names[place.rank])
    return outcome
