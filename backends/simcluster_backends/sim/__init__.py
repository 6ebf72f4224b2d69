"""The simulator: all nodes in one asyncio loop on SimPy's clock. `run_cluster` is the only entry point.

It is imported at its first use, since it needs torch; flows without an algorithm (plain_flows.py) do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcluster_backends.sim.run import SimCluster, check_options, run_bodies, run_cluster, verdict_of

__all__ = ["SimCluster", "check_options", "run_bodies", "run_cluster", "verdict_of"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("simcluster_backends.sim.run"), name)
