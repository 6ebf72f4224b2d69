"""The backend's options and unsupported features, all checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from simcluster.documents.yaml import describe
from simcluster.errors import Problem, nearest, raise_all
from simcluster.experiment.job import ClusterJob
from simcluster.fault_plans.kinds import DEAD_S, LIMITS_S
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.torch.group import Place

INBOX_MOST_BYTES = 2**50

SWITCHES = ("portable", "nccl")

GRACE_S = 30.0
"""Time beyond `stop.time` for an algorithm to end."""


@dataclass(frozen=True)
class Options:
    """A process is dead after *dead_s* without a heartbeat, and stops beating if its event loop has not turned for
    *loop_s*. A start may take *start_s*. NeverFinished ends a run if every rank waits and nothing moves for *stuck_s*,
    if no work is done and nothing recorded for *idle_s*, or if the algorithms have not ended after *limit_s*, by
    default GRACE_S more than the experiment's `stop.time`. A process accepts *inbox_bytes* from one peer before its
    algorithm has received them. *portable* kernels are those that every x86-64 machine has. With *nccl*, tensors travel
    from one CUDA device to another if every rank has its own.
    """

    heartbeat_s: float = 0.5
    dead_s: float = DEAD_S
    start_s: float = 60.0
    stuck_s: float = 30.0
    idle_s: float = 1800.0
    loop_s: float = 300.0
    limit_s: float | None = None
    inbox_bytes: int = INBOX_BYTES
    portable: bool = False
    nccl: bool = True


def read_options(job: ClusterJob, place: Place | None) -> Options:
    """Return the options of *job*. Raise UsageError listing every problem, including unsupported features."""
    problems = _not_done_here(job)
    options = _read(job.options, problems)
    if place is not None and place.size != len(job.names):
        expected = f"{len(job.names)} processes, one for each node of the topology: {', '.join(job.names)}"
        problems.append(Problem("WORLD_SIZE", str(place.size), expected))
    raise_all(problems)
    if options.limit_s is None and job.time_s is not None:
        options = replace(options, limit_s=job.time_s + GRACE_S)
    return options


def check_options(given: Mapping[str, Any]) -> None:
    """Raise UsageError listing every option that is invalid for any job."""
    problems: list[Problem] = []
    _read(given, problems)
    raise_all(problems)


def _read(wanted: Mapping[str, Any], problems: list[Problem]) -> Options:
    """Return the options that are *wanted*; add what is wrong with them, whatever the job, to *problems*."""
    names = [field.name for field in fields(Options)]
    given: dict[str, Any] = {}
    for name, value in wanted.items():
        kinds = (int,) if name == "inbox_bytes" else (int, float)
        most = INBOX_MOST_BYTES if name == "inbox_bytes" else LIMITS_S[1]
        if name not in names:
            problems.append(Problem(name, "unknown option of the torch backend", nearest(name, names)))
        elif name in SWITCHES and not isinstance(value, bool):
            problems.append(Problem(name, describe(value), "true or false"))
        elif name not in SWITCHES and (
            isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value <= most
        ):
            problems.append(Problem(name, describe(value), f"a number of more than 0 and at most {most:.15g}"))
        else:
            given[name] = value
    options = Options(**given)
    least_s = 2 * options.heartbeat_s
    if options.dead_s < least_s:
        problems.append(Problem("dead_s", f"{options.dead_s:g}", f"at least two heartbeats, {least_s:g}"))
    return options


def _not_done_here(job: ClusterJob) -> list[Problem]:
    wishes = {
        "faults": "none: torch.distributed cannot delay or cut connections; use sim or sockets",
        "checkpoint": "none: the torch backend keeps no checkpoints of steps; use sim or sockets",
        "resume": "a run on sim or sockets, which can resume from a checkpoint",
    }
    keeps = job.keeping is not None and job.keeping.keeps
    resumes = job.keeping is not None and job.keeping.restored is not None
    wanted = (bool(job.faults), keeps, resumes)
    return [Problem(key, "asked for", wishes[key]) for key, wish in zip(wishes, wanted, strict=True) if wish]
