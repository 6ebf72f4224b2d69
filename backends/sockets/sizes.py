"""How much a node takes in one message: never more than it has memory for.

This file knows memories. It must not know frames or connections.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES

if TYPE_CHECKING:
    from backends.sockets.wire.messages import Job
    from simcluster.experiment.job import ClusterJob

LEAST_BYTES = 64 * 1024


def message_limits(job: ClusterJob) -> list[int]:
    """Return, for each rank of *job*, the memory that its topology gives it, or a general limit."""
    nodes = job.topology.nodes if job.topology is not None else {}
    limits = []
    for name in job.names:
        device = nodes[name].device if name in nodes else None
        memory = device.memory_bytes if device is not None else None
        limits.append(MESSAGE_LIMIT_BYTES if memory is None else max(LEAST_BYTES, min(memory, MESSAGE_LIMIT_BYTES)))
    return limits


def most_of_a_message(job: Job) -> int:
    """Return what the node that runs *job* takes here: no more than this machine has memory for."""
    most = job.message_limits[job.rank] if job.message_limits else MESSAGE_LIMIT_BYTES
    return min(most, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
