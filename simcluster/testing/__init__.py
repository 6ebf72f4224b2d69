"""The promises of `simcluster.transport` as code: put any backend through `check_transport(run_bodies)`.

*run_bodies* takes a list of `async def body(node)`, runs body i as rank i of one cluster, and returns a list with each
body's result, or the exception it ended with. A body that raises `Crash` dies on the spot, without a goodbye: its
peers must see a PeerLost. Every peer stays in the cluster until its own body ends.

A backend on which nodes can come back has more promises to keep: its body may raise `ComesBack`, and is then run again
from its beginning, in the place of the node that died. `check_transport(run_bodies, comes_back=True)` checks those.

Tests of order use messages and events, never durations.
"""

from __future__ import annotations

from collections.abc import Callable

from simcluster.testing import compute, failure, identity, loss, order, payloads, returning, waiting
from simcluster.testing.harness import Body, ComesBack, Crash, RunBodies

__all__ = ["CHECKS", "CHECKS_OF_RETURNS", "Body", "ComesBack", "Crash", "RunBodies", "check_transport"]

CHECKS: list[Callable[[RunBodies], None]] = [
    check for module in (identity, payloads, order, waiting, compute, loss, failure) for check in module.CHECKS
]
"""Every promise, each a function of *run_bodies* whose name is the claim."""

CHECKS_OF_RETURNS: list[Callable[[RunBodies], None]] = list(returning.CHECKS)
"""What holds beside that where nodes can come back."""


def check_transport(run_bodies: RunBodies, *, comes_back: bool = False) -> list[str]:
    """Runs every check against *run_bodies*; returns their names. Raises AssertionError, naming check and promise."""
    checks = CHECKS + (CHECKS_OF_RETURNS if comes_back else [])
    for check in checks:
        try:
            check(run_bodies)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check in checks]
