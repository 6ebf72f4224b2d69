"""The promises of `simcluster.transport` as code: `check_transport(run_bodies)` tests any backend.

*run_bodies* takes a list of `async def body(node)` and runs body i as rank i of one cluster. It
returns a list with the result of each body, or the exception that ended the body. A body that
raises `Crash` dies at once, without notifying its peers: they must get a PeerLost. Every node stays
in the cluster until its own body ends.

A backend that lets nodes rejoin must keep more promises, which `check_transport(run_bodies,
comes_back=True)` also tests. A body may then raise `ComesBack`, and is run again from the start, in
place of the node that died.

A backend with connections that can break must also keep more promises, which
`check_transport(run_bodies, resets=run_with_resets)` tests. *resets* is like *run_bodies*, but
breaks the connections between its nodes again and again.

Tests of order rely on messages and events, never on durations.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from types import ModuleType

from simcluster.testing import breaking, compute, loss, order, payloads, returning, waiting
from simcluster.testing.harness import Body, ComesBack, Crash, RunBodies

__all__ = [
    "CHECKS",
    "CHECKS_OF_RESETS",
    "CHECKS_OF_RETURNS",
    "Body",
    "ComesBack",
    "Crash",
    "RunBodies",
    "check_transport",
]


def _checks(*modules: ModuleType) -> list[Callable[[RunBodies], None]]:
    """Return the functions of *modules* that have *run_bodies* as their only parameter."""
    found = [thing for module in modules for thing in vars(module).values() if isfunction(thing)]
    return [check for check in found if list(signature(check).parameters) == ["run_bodies"]]


CHECKS = _checks(payloads, order, waiting, compute, loss)
"""The promises that every backend must keep. Each check is a function named after its promise."""

CHECKS_OF_RETURNS = _checks(returning)
"""The additional promises of backends that let nodes rejoin."""

CHECKS_OF_RESETS = _checks(breaking)
"""The additional promises of backends with connections that can break."""


def check_transport(run_bodies: RunBodies, *, comes_back: bool = False, resets: RunBodies | None = None) -> list[str]:
    """Run all checks with *run_bodies*, and return their names.

    Raise AssertionError, with the name of the check, for the first promise that the backend does
    not keep.
    """
    checks = [(check, run_bodies) for check in CHECKS + (CHECKS_OF_RETURNS if comes_back else [])]
    checks += [(check, resets) for check in CHECKS_OF_RESETS if resets is not None]
    for check, runs in checks:
        try:
            check(runs)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check, _ in checks]
