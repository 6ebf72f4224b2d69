"""The proof kit: holds an algorithm, ours or a user's own, to what is claimed of it.

    simcluster.verify("edp").ok
    print(simcluster.verify("my_algo.py:my_algorithm", quick=True).table())

The package itself can be called, since `simcluster.verify` is its name, too. What it takes is imported when it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcluster.verify.claim import Claim
    from simcluster.verify.verdict import Verification

__all__ = ["verify"]


def verify(
    algorithm: str,
    *,
    workload: str | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    nodes: Sequence[int] | None = None,
    backend: str = "both",
    seed: int = 0,
    quick: bool = False,
    claim: Claim | None = None,
    only: Sequence[str] | None = None,
) -> Verification:
    """Holds *algorithm*, a name or `file.py:function`, to what is claimed of it, and to what all must keep.

    *workload* is a name, a `file.py:function` or what an experiment has under this key; *settings* come on top of those
    that are claimed; *nodes* are the world sizes; *backend* is sim, sockets or both. *quick* leaves out what takes
    long. *claim* is what is claimed, else that of the algorithm's own. *only* names the checks to make, else all.
    Raises UsageError for a wrong request.
    """
    from simcluster.verify.suite import run_checks

    return run_checks(
        algorithm, workload=workload, settings=settings, nodes=nodes, backend=backend, seed=seed, quick=quick,
        claim=claim, only=only,
    )  # fmt: skip


class _Callable(ModuleType):
    def __call__(self, algorithm: str, **options: Any) -> Verification:
        return verify(algorithm, **options)


sys.modules[__name__].__class__ = _Callable
