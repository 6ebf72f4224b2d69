"""The job that the launcher sends to one node: its part of the cluster's job."""

from __future__ import annotations

from simcluster.job import ClusterJob
from simcluster.logs import setup as logs
from simcluster_backends.sockets.launcher.faults import holds, resets, slow_spells
from simcluster_backends.sockets.launcher.settings import SocketOptions
from simcluster_backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES
from simcluster_backends.sockets.wire.messages import Job

LEAST_BYTES = 64 * 1024
"""The lowest message limit of a node, even if its topology gives it less memory."""


def node_job(job: ClusterJob, options: SocketOptions, rank: int, run: bytes, *, late: bool = False) -> Job:
    """Return the job of the node of *rank*; *late* means that the run has already begun."""
    most, keeping = _message_limits(job), job.keeping
    settings = logs.current()
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
        keeps=keeping is not None and keeping.keeps,
        resumes=keeping is not None and keeping.restored is not None,
        order=options.order,
        portable=options.portable,
        shortcuts=options.shortcuts,
        late=late,
        message_limits=most,
        resets=resets(job, rank),
        report_at=[fault.step for fault in job.faults if fault.step is not None and fault.is_reached(rank, fault.step)],
        title=str(job.about.get("name", "")),
        log_format=settings.format,
        log_level=logs.level_of_nodes(),
        loki=settings.loki,
    )


def _message_limits(job: ClusterJob) -> list[int]:
    """Return each rank's message limit: the memory that the topology gives it, within the general limits.

    Messages are in the host's memory, even if their node computes on an accelerator.
    """
    nodes = job.topology.nodes if job.topology is not None else {}
    limits = []
    for name in job.names:
        device = nodes[name].device if name in nodes else None
        host = device.cpu if device is not None and device.cpu is not None else device
        memory = host.memory_bytes if host is not None else None
        limits.append(MESSAGE_LIMIT_BYTES if memory is None else max(LEAST_BYTES, min(memory, MESSAGE_LIMIT_BYTES)))
    return limits
