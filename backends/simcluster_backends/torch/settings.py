"""Check the options of the torch backend, and refuse what it cannot do, before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.documents.values import Flag
from simcluster.errors import Problem, raise_all
from simcluster.job import ClusterJob
from simcluster_backends.common.options import NodeOptions, options_of
from simcluster_backends.torch.group import WorldPlace

BACKEND = "torch backend"


@dataclass(frozen=True, kw_only=True)
class TorchOptions(NodeOptions):
    """The `options` of a ClusterJob on torch.

    With *nccl*, tensors travel directly between CUDA devices, if every rank has its own device.
    """

    nccl: Flag = True


def read_options(job: ClusterJob, place: WorldPlace | None) -> TorchOptions:
    """Return the options of *job*. Raise UsageError with all problems and unsupported features."""
    problems = _not_done_here(job)
    options = options_of(TorchOptions, job.options, BACKEND, problems)
    if place is not None and place.size != len(job.names):
        expected = f"{len(job.names)} processes, one for each node of the topology: {', '.join(job.names)}"
        problems.append(Problem("WORLD_SIZE", str(place.size), expected))
    raise_all(problems)
    return options.until(job.time_s)


def _not_done_here(job: ClusterJob) -> list[Problem]:
    keeps = job.keeping is not None and job.keeping.keeps
    resumes = job.keeping is not None and job.keeping.restored is not None
    wishes = [
        (job.faults, "faults", "none: torch.distributed cannot delay or cut connections; use sim or sockets"),
        (keeps, "checkpoint", "none: the torch backend keeps no checkpoints of steps; use sim or sockets"),
        (resumes, "resume", "a run on sim or sockets, which can resume from a checkpoint"),
    ]
    return [Problem(key, "asked for", expected) for wish, key, expected in wishes if wish]
