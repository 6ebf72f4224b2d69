"""Limits of the frames and messages that a node accepts, bounded by its machine's memory."""

from __future__ import annotations

import os

from simcluster_backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES
from simcluster_backends.sockets.wire.messages import Job
from simcluster_backends.sockets.wire.reader import Limits


def limits_of(job: Job) -> Limits:
    """Return the limits of the node that runs *job* here."""
    most = job.message_limits[job.rank] if job.message_limits else MESSAGE_LIMIT_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(body_bytes=job.body_limit_bytes, message_bytes=min(most, memory))
