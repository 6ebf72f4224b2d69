"""Whether this machine can compute what is asked of it: told before it tries, since a system says no by ending the
process.
"""

from __future__ import annotations

import os

from simcluster.errors import Problem, UsageError
from simcluster.units import format_size
from simcluster.workloads import Workload


def check_host(workload: Workload, replicas: int) -> None:
    """Raises UsageError if weights and gradients of *replicas* that compute are more than this machine's memory.

    Only of workloads that know their size without being made.
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
