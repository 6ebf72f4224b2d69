"""The promises of `simcluster.transport` as code: put any backend through `check_transport(run_bodies)`.

*run_bodies* takes a list of `async def body(node)`, runs body i as rank i of one cluster, and returns a list with each
body's result, or the exception it ended with. A body that raises `Crash` dies on the spot, without a goodbye: its
peers must see a PeerLost. Every peer stays in the cluster until its own body ends.

This package knows the interface only. It must not know a backend, and it uses no pytest, since users' own backends are
checked with it too. Tests of order use messages and events, never durations.
"""

from __future__ import annotations

from collections.abc import Callable

from simcluster.testing import compute, failure, identity, loss, order, payloads, waiting
from simcluster.testing.harness import Body, Crash, RunBodies

__all__ = ["CHECKS", "Body", "Crash", "RunBodies", "check_transport"]

CHECKS: list[Callable[[RunBodies], None]] = [
    check for module in (identity, payloads, order, waiting, compute, loss, failure) for check in module.CHECKS
]
"""Every promise, each a function of *run_bodies* whose name is the claim."""


def check_transport(run_bodies: RunBodies) -> list[str]:
    """Runs every check against *run_bodies*; returns their names. Raises AssertionError, naming check and promise."""
    for check in CHECKS:
        try:
            check(run_bodies)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check in CHECKS]
