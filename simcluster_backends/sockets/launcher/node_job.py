"""The job that the launcher sends to one node, made from the job of the whole cluster."""

from __future__ import annotations

from typing import Any

from simcluster.experiment.job import ClusterJob
from simcluster.logs import setup as logs
from simcluster_backends.sockets.launcher.faults import holds, slow_spells
from simcluster_backends.sockets.launcher.settings import Options
from simcluster_backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES
from simcluster_backends.sockets.wire.messages import Job

LEAST_BYTES = 64 * 1024
"""However little memory its topology gives a node, it takes a message of this size."""


def node_job(job: ClusterJob, options: Options, rank: int, run: bytes, *, late: bool = False) -> Job:
    """Return what the node of *rank* is sent of *job*; *late*: the run has begun."""
    most = _message_limits(job)
    return Job(
        rank,
        list(job.names),
        job.seed,
        job.config_json,
        job.program,
        run,
        options.inbox_bytes,
        min([options.body_limit_bytes, *most]),
        options.heartbeat_s,
        options.dead_s,
        options.start_s,
        options.uvloop,
        slow_spells(job, rank),
        holds(job, rank),
        keeps=job.keeping is not None and job.keeping.keeps,
        resumes=job.keeping is not None and job.keeping.restored is not None,
        order=options.order,
        portable=options.portable,
        late=late,
        message_limits=most,
        **_logging(job),
    )


def _logging(job: ClusterJob) -> dict[str, Any]:
    """How nodes log: as this process does, but for the level where nothing was said."""
    settings = logs.current()
    plainly = settings == logs.LogSettings(job=settings.job)
    level = "info" if plainly else settings.level
    title = str(job.about.get("name", ""))
    return {"title": title, "log_format": settings.format, "log_level": level, "loki": settings.loki}


def _message_limits(job: ClusterJob) -> list[int]:
    """Return, for each rank of *job*, the memory that its topology gives it, or a general limit."""
    nodes = job.topology.nodes if job.topology is not None else {}
    limits = []
    for name in job.names:
        device = nodes[name].device if name in nodes else None
        memory = device.memory_bytes if device is not None else None
        limits.append(MESSAGE_LIMIT_BYTES if memory is None else max(LEAST_BYTES, min(memory, MESSAGE_LIMIT_BYTES)))
    return limits
