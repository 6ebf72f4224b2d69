"""Worlds: SimPy processes that change a simulated cluster while its nodes run. See docs/worlds.md."""

from simcluster.worlds.handles import ClusterHandle, LinkHandle, TrafficHandle, WorkerHandle
from simcluster.worlds.planned_world import PlannedWorld, check_world

__all__ = ["ClusterHandle", "LinkHandle", "PlannedWorld", "TrafficHandle", "WorkerHandle", "check_world"]
