"""All checks, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from simcluster.errors import Problem, UsageError, nearest
from simcluster.process.intra_op import one_thread
from simcluster.verify.checks import (
    backends,
    compressors,
    conservation,
    data,
    determinism,
    identities,
    knobs,
    learning,
    mixing,
    one_process,
    survives,
    waiting,
    wire,
)
from simcluster.verify.claim import Claim
from simcluster.verify.subject import BACKENDS, Subject, subject_of
from simcluster.verify.verdict import Check, Verification

CHECKS: Final[Mapping[str, Callable[[Subject], Iterator[Check]]]] = {
    "alone": one_process.alone,
    "one process": one_process.joined,
    "momentum": one_process.tuned,
    "identities": identities.identities,
    "backends": backends.backends,
    "determinism": determinism.determinism,
    "messages": conservation.messages,
    "contributions": conservation.contributions,
    "staleness": waiting.staleness,
    "mixing": mixing.matrix,
    "fixed point": mixing.fixed_point,
    "settings": knobs.knobs,
    "bytes": wire.formula,
    "networks": wire.networks,
    "disconnected": wire.disconnected,
    "learns": learning.learns,
    "arrives": learning.arrives,
    "agree": learning.agree,
    "faults": survives.survives,
    "compression": compressors.compressors,
    "sums": waiting.sums,
    "shards": data.shards,
    "clipping": data.clipping,
    "birth": data.birth,
}
"""The names for `only`."""


@one_thread()
def run_checks(
    algorithm: str,
    *,
    workload: str | Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None,
    nodes: Sequence[int] | None,
    backend: str,
    seed: int,
    quick: bool,
    claim: Claim | None,
    only: Sequence[str] | None,
    on_check: Callable[[Check], None] | None = None,
) -> Verification:
    """See `simcluster.verify.verify`; *on_check* is called with each line as soon as it is known."""
    _refuse(nodes, backend, seed, only)
    backends = BACKENDS if backend == "both" else (backend,)
    subject = subject_of(
        algorithm, workload=workload, settings=settings, sizes=nodes, backends=backends, seed=seed, quick=quick,
        claim=claim,
    )  # fmt: skip
    found: list[Check] = []
    for check in _checks(subject, only):
        found.append(check)
        if on_check is not None:
            on_check(check)
    what = subject.workload.get("name") or subject.workload["path"]
    return Verification(subject.name, str(what), tuple(found))


def _checks(subject: Subject, only: Sequence[str] | None) -> Iterator[Check]:
    for name, check in CHECKS.items():
        if only is None or name in only:
            yield from check(subject)


def _refuse(nodes: Sequence[int] | None, backend: str, seed: int, only: Sequence[str] | None) -> None:
    problems = []
    if backend not in (*BACKENDS, "both"):
        problems.append(Problem("--backend", repr(backend), "sim, sockets or both"))
    if nodes is not None and (not nodes or min(nodes) < 1):
        problems.append(Problem("--nodes", str(list(nodes)), "world sizes of at least 1, like 1,2,3"))
    if seed < 0:
        problems.append(Problem("--seed", str(seed), "a whole number of at least 0"))
    for name in only or ():
        if name not in CHECKS:
            problems.append(Problem("only", repr(name), f"a check: {nearest(name, CHECKS)}"))
    if problems:
        raise UsageError(problems)
