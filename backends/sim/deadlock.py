"""What those who have not ended wait for, and where in their own code: for a run in which nothing happens any more.

This file knows tasks, frames and nodes. It must not know what comes of it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.loop.event_loop import SimTask


def waits_of(cluster: Cluster) -> list[str]:
    """One line per rank that has not ended: what it waits for, and where."""
    lines = []
    for node, task in zip(cluster.nodes, cluster.tasks, strict=True):
        if not task.done():
            what = ", ".join(node.waits()) or "something outside the transport"
            lines.append(f"rank {node.rank} ({node.name}) waits for {what}{_place(task)}")
    return lines


def _place(task: SimTask[Any]) -> str:
    """' at file:line' of the innermost frame that is the algorithm's own."""
    place = ""
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType):
        frame = awaited.cr_frame
        if frame is not None and not _is_plumbing(frame.f_code.co_filename):
            place = f" at {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        awaited = awaited.cr_await
    return place


def _is_plumbing(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return "/backends/" in path or "asyncio" in path or path.endswith("/simcluster/inbox.py")
