"""The simulator: all nodes run in one asyncio loop on SimPy's clock.

The names in `__all__` are imported on first use, because they need torch. plain_flows.py, which
simulates flows without an algorithm, does not need it.
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
