"""The stop of a run: after steps or epochs of every rank, or at a time."""

from __future__ import annotations

import os

from simcluster.documents.limits import MOST_STEPS
from simcluster.documents.reading import Reading
from simcluster.documents.user_code import calling
from simcluster.errors import Problem, UsageError
from simcluster.experiment.keys import ExperimentBlock
from simcluster.topology import Topology
from simcluster.units import format_size
from simcluster.workloads import Replica, Workload


def count_steps(reading: Reading, workload: Workload | None, cluster: Topology | None, top: ExperimentBlock) -> int:
    """Return the steps of every rank; create a replica, so that undistributable data is found now.

    The same applies to work that needs values in a run without any, or that is too large for this machine.
    """
    if workload is None or cluster is None or reading.problems:
        return 1
    steps, epochs, numerics = top.stop.steps, top.stop.epochs, top.numerics
    size = len(cluster.workers)

    def try_one() -> Replica:
        if numerics == "real":
            # A simulator holds all replicas in this process; the nodes of other backends may be elsewhere.
            check_host(workload, size if top.backend == "sim" else 1)
        replica = workload.replica(0, size, top.seed, steps, epochs, numerics=numerics)
        if numerics == "none":
            replica.gradient_cost(next(replica.batches()))
            replica.apply_cost()
        return replica

    replica: Replica | None = reading.collect(lambda: calling(workload.model, try_one, "a model that works"))
    if replica is None:
        return 1
    if replica.steps > MOST_STEPS:
        reading.bad(("stop", "epochs"), f"at most {MOST_STEPS} steps", f"{epochs}, which is {replica.steps} steps")
    return replica.steps


def check_host(workload: Workload, replicas: int) -> None:
    """Raise UsageError if the weights and gradients of *replicas* exceed this machine's memory.

    Only workloads that know their size without being created are checked.
    """
    if workload.weights_bytes is None:
        return
    needed, there = 2 * replicas * workload.weights_bytes, _memory_bytes()
    if needed > there:
        who = "a replica" if replicas == 1 else f"{replicas} replicas"
        raise UsageError(
            Problem(
                "numerics",
                f"real, but weights and gradients of {who} are {format_size(needed)}",
                f"none, which computes nothing; or at most {format_size(there)}, the memory of this machine",
            )
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
