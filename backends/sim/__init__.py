"""The simulator: every node in one asyncio loop whose clock is SimPy's. `run_cluster` is its only door."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from backends.sim.cluster import Cluster, run_bodies
from simcluster.errors import NeedsValues, NodeFailed, PeerLost, Problem, RunError, UsageError
from simcluster.experiment.fault_kinds import Crash
from simcluster.results.record import RunRecord

if TYPE_CHECKING:
    from backends.sim.transport import SimTransport
    from simcluster.experiment.job import ClusterJob

__all__ = ["Cluster", "run_bodies", "run_cluster"]

OPTIONS = {"inbox_bytes": 0, "threads": 1}
"""Name -> the least that it may be."""


def run_cluster(job: ClusterJob) -> RunRecord:
    """Runs *job* in virtual time. The record's error tells why the run failed; a failing node does not raise here."""
    assert job.topology is not None, "the simulator needs a topology"
    _check_options(job.options)
    module, _, function = job.program.partition(":")
    program = getattr(import_module(module), function)
    cluster = Cluster(job.topology, job.seed, **job.options)
    if job.on_progress is not None:
        for node in cluster.nodes:
            node.on_step = job.on_progress

    async def body(node: SimTransport) -> Any:
        return await program(node, node.recorder, job.config_json)

    started = time.perf_counter()  # only reported: nothing is decided by it
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    error: RunError | None = None
    try:
        crashes = [(fault.spells[0][0], fault.rank) for fault in job.faults if isinstance(fault, Crash)]
        cluster.run([body] * len(cluster.nodes), crashes)
        error = _first_error(cluster)
    except RunError as stuck:
        error = _first_error(cluster) or stuck
    finally:
        torch.set_num_threads(threads)
    records = [node.recorder.record for node in cluster.nodes]
    elapsed_s = max((record.finished_s or 0.0 for record in records), default=0.0)
    lost = {cluster.nodes[rank].name: "crashed by the fault plan" for rank in cluster.crashed}
    return RunRecord(records, elapsed_s, time.perf_counter() - started, error, {"lost": lost} if lost else {})


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises UsageError with all that is wrong with them."""
    problems = [
        Problem(
            name, "an option that the simulator does not have", f"one of {', '.join(OPTIONS)}; is it meant for sockets?"
        )
        for name in sorted(set(options) - set(OPTIONS))
    ]
    problems += [
        Problem(name, repr(options[name]), f"a whole number of at least {least}")
        for name, least in OPTIONS.items()
        if name in options and (type(options[name]) is not int or options[name] < least)
    ]
    if problems:
        raise UsageError(problems)


def _first_error(cluster: Cluster) -> RunError | None:
    """The cause of the first failure in virtual time; those that it brought about in others are not told."""
    if not cluster.failures:
        return None
    rank, failure = cluster.failures[0]
    if isinstance(failure, (NeedsValues, PeerLost)):
        return failure
    details = "".join(traceback.format_exception(failure))
    return NodeFailed(rank, cluster.nodes[rank].name, details)
