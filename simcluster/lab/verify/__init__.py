"""The proof kit: verify a built-in or user-written algorithm against its claims.

    simcluster.verify("edp").ok
    print(simcluster.verify("my_algo.py:my_algorithm", quick=True).table())

`simcluster.lab.verify` is both this package and the function: the package itself is callable. Its
modules are imported by the first call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from simcluster.errors import in_short

if TYPE_CHECKING:
    from simcluster.lab.verify.claim import Claim
    from simcluster.lab.verify.verdict import Verification
    from simcluster.workloads import Workload

__all__ = ["verify"]


@in_short
def verify(
    algorithm: str | Callable[..., Any],
    *,
    workload: str | Callable[..., Any] | Mapping[str, Any] | Workload | None = None,
    settings: Mapping[str, Any] | None = None,
    nodes: Sequence[int] | None = None,
    backend: str = "both",
    seed: int = 0,
    quick: bool = False,
    claim: Claim | None = None,
    only: Sequence[str] | None = None,
) -> Verification:
    """Verify *algorithm* against its claims and the laws that all algorithms must keep.

        verify(my_algorithm, quick=True).ok

    *algorithm* is a name, "file.py:function", a function, or a program that serves a model:
    "generate", "generate_tensor" or "serve_replicas". *workload* is a name, "file.py:function", a
    function, a Workload, or an experiment's value for this key. *settings* are added to the claim's
    settings; *nodes* are the world sizes; *backend* is sim, sockets or both. *quick* skips slow
    checks. *claim* replaces the algorithm's own claim. *only* names the checks to run; None runs
    all. Raise UsageError for an invalid request.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from simcluster.lab.verify.served import laws
    from simcluster.lab.verify.served.page import PAGES
    from simcluster.lab.verify.subject import BACKENDS, QUICK_SIZES, SIZES, subject_of
    from simcluster.lab.verify.suite import CHECKS, refuse_wrong, run_checks
    from simcluster.process.intra_op import one_thread

    is_page = isinstance(algorithm, str) and algorithm in PAGES
    refuse_wrong(nodes, backend, seed, only, laws.CHECKS if is_page else CHECKS)
    with one_thread(), TemporaryDirectory(prefix="simcluster-verify-") as home:
        if is_page:
            given = {"--workload": workload, "--set": settings, "claim": claim}
            sizes = nodes or (QUICK_SIZES if quick else SIZES)
            backends = BACKENDS if backend == "both" and not quick else (backend,)
            return laws.verify_page(str(algorithm), given, sizes, nodes is not None, backends, seed, only, Path(home))
        subject = subject_of(algorithm, workload, settings, nodes, backend, seed, quick, claim, Path(home))
        return run_checks(subject, only)


class _Callable(ModuleType):
    def __call__(self, algorithm: str | Callable[..., Any], **options: Any) -> Verification:
        return verify(algorithm, **options)


sys.modules[__name__].__class__ = _Callable
