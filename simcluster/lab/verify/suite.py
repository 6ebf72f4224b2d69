"""All checks, in the order of the table, and the function that runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simcluster.documents.captured.source import is_captured
from simcluster.errors import Problem, raise_all
from simcluster.lab.verify.checks import (
    conservation,
    data,
    determinism,
    knobs,
    learning,
    mixing,
    one_process,
    schedules,
    silent,
    statistics,
    survives,
    wire,
)
from simcluster.lab.verify.subject import BACKENDS, Subject
from simcluster.lab.verify.verdict import Check, Verification, judged
from simcluster.runs.summary import label
from simcluster.spelling import nearest

MOST_NODES = 1024
"""Limit on a world size: checks run at every size, and on sockets each node is a process."""


def _line(name: str, check: Callable[[Subject], str]) -> Callable[[Subject], Iterator[Check]]:
    """Turn *check*, which returns one reason, into a check that yields one line called *name*."""
    return lambda subject: iter([judged(name, partial(check, subject))])


CHECKS: Mapping[str, Callable[[Subject], Iterator[Check]]] = {
    "alone": _line("N = 1", one_process.alone),
    "one process": _line("N = one process", one_process.joined),
    "momentum": _line("N = one process, with momentum and clipping", one_process.tuned),
    "identities": one_process.identities,
    "unequal": _line("batches by node", one_process.unequal),
    "backends": _line("simulator = sockets", determinism.backends),
    "determinism": _line("determinism", determinism.determinism),
    "draws": _line("global generators", determinism.draws),
    "messages": _line("conservation of messages", conservation.messages),
    "contributions": _line("conservation of contributions", conservation.contributions),
    "staleness": _line("staleness", conservation.staleness),
    "mixing": _line("mixing matrix", mixing.matrix),
    "fixed point": _line("fixed point", mixing.fixed_point),
    "settings": knobs.knobs,
    "bytes": _line("bytes = formula", wire.formula),
    "networks": _line("any network", wire.networks),
    "disconnected": _line("a disconnected network", wire.disconnected),
    "learns": _line("learns", learning.learns),
    "arrives": _line("the gradient arrives", learning.arrives),
    "agree": _line("replicas agree", learning.agree),
    "faults": survives.survives,
    "compression": _line("compression", wire.compressors),
    "sums": _line("sums by step and shard", conservation.sums),
    "shards": _line("shards", data.shards),
    "clipping": _line("clipping", data.clipping),
    "schedule": _line("a schedule counts the run's steps", schedules.schedule),
    "birth": _line("initial weights", data.birth),
    "statistics": _line("running statistics travel", statistics.travel),
    "work": _line("work in node.compute", silent.work),
    "finite": _line("finite numbers", silent.finite),
    "awaited": _line("everything awaited", silent.awaited),
    "recorded": _line("steps recorded", silent.recorded),
    "apart": _line("no shared state", silent.apart),
}
"""Name of a check, as in the argument *only* -> the check."""


def run_checks(subject: Subject, only: Sequence[str] | None) -> Verification:
    """Run the checks named in *only*; if None, run all checks."""
    found = [check for name, checks in CHECKS.items() if only is None or name in only for check in checks(subject)]
    algorithm, workload = (_named(block) for block in (subject.algorithm, subject.workload))
    return Verification(algorithm, workload, tuple(found))


def _named(block: Mapping[str, Any]) -> str:
    path = str(block.get("path"))
    return str(block.get("name") or (label(block) if is_captured(Path(path)) else path))


def refuse_wrong(
    nodes: Sequence[int] | None, backend: str, seed: int, only: Sequence[str] | None, checks: Collection[str] = CHECKS
) -> None:
    """Raise UsageError, with all problems, for an invalid request; *checks* are the known names."""
    problems = []
    if backend not in (*BACKENDS, "both"):
        problems.append(Problem("--backend", repr(backend), "sim, sockets or both"))
    if nodes is not None and (not nodes or min(nodes) < 1 or max(nodes) > MOST_NODES):
        expected = f"world sizes of at least 1 and at most {MOST_NODES}, like 1,2,3"
        problems.append(Problem("--nodes", str(list(nodes)), expected))
    if seed < 0:
        problems.append(Problem("--seed", str(seed), "a whole number of at least 0"))
    for name in only or ():
        if name not in checks:
            problems.append(Problem("only", repr(name), f"a check: {nearest(name, checks)}"))
    raise_all(problems)
