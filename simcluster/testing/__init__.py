"""The promises of `simcluster.transport` as code: test any backend with `check_transport(run_bodies)`.

*run_bodies* takes a list of `async def body(node)`, runs body i as rank i of one cluster, and returns a list with each
body's result or the exception that ended it. A body that raises `Crash` dies at once, without a goodbye: its peers must
get a PeerLost. Every peer stays in the cluster until its own body ends.

If nodes can rejoin, a backend has more promises to keep: a body may raise `ComesBack`, and is then run again from the
start, in place of the node that died. `check_transport(run_bodies, comes_back=True)` tests these too.

If connections can break, a backend has more promises to keep: `check_transport(run_bodies, resets=run_with_resets)`
tests these, with a *run_bodies* that also breaks the connections between its nodes again and again.

Tests of order use messages and events, never durations.
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
    """Return the functions of *modules* that take *run_bodies* and nothing else."""
    found = [thing for module in modules for thing in vars(module).values() if isfunction(thing)]
    return [check for check in found if list(signature(check).parameters) == ["run_bodies"]]


CHECKS = _checks(payloads, order, waiting, compute, loss)
"""Every promise as a function of *run_bodies*, named after its claim."""

CHECKS_OF_RETURNS = _checks(returning)
"""The further promises of backends with nodes that can rejoin."""

CHECKS_OF_RESETS = _checks(breaking)
"""The further promises of backends with connections that can break."""


def check_transport(run_bodies: RunBodies, *, comes_back: bool = False, resets: RunBodies | None = None) -> list[str]:
    """Run every check against *run_bodies*; return their names. Raises AssertionError that names check and promise."""
    checks = [(check, run_bodies) for check in CHECKS + (CHECKS_OF_RETURNS if comes_back else [])]
    checks += [(check, resets) for check in CHECKS_OF_RESETS if resets is not None]
    for check, runs in checks:
        try:
            check(runs)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check, _ in checks]
