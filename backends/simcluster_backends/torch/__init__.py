"""The transport over torch.distributed: `--backend torch` calls `run_cluster` in each process of a run."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcluster.job import ClusterJob
    from simcluster.runs.record import RunRecord
    from simcluster_backends.torch.group import WorldPlace
    from simcluster_backends.torch.settings import TorchOptions

__all__ = ["check_options", "run_cluster"]

_runs = itertools.count()


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError listing every one of *options* that is invalid for any job."""
    from simcluster_backends.common.options import check
    from simcluster_backends.torch.settings import BACKEND, TorchOptions

    check(TorchOptions, options, BACKEND)


def run_cluster(job: ClusterJob) -> RunRecord:
    """Run *job*: this process's rank of it if torchrun or the like has set RANK, WORLD_SIZE and MASTER_ADDR; else all
    of it, in processes on this machine that have all ended when this returns or raises.

    Rank 0 returns the record; its `error` is set if the run failed. Other ranks raise WrittenElsewhere if their part
    went well, else its RunError. Raise UsageError before anything starts, LaunchFailed if the ranks do not come
    together. May be called inside a running event loop, as in a notebook.
    """
    import torch.distributed as dist

    from simcluster.errors import Problem, UsageError
    from simcluster.process.platforms import need_unix

    need_unix("real nodes")

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
