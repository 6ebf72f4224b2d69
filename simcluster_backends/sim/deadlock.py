"""The deadlock report: what each node waits for, and where in the user's code."""

from __future__ import annotations

from collections.abc import Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.event_loop import SimTask


class Waits(Protocol):
    """A node that can say what it waits for."""

    rank: int
    name: str

    def waits(self) -> list[str]: ...


def waits_of(nodes: Sequence[Waits], tasks: Sequence[SimTask[Any]]) -> list[str]:
    """Return one line per unfinished rank: what it waits for, and where."""
    lines = []
    for node, task in zip(nodes, tasks, strict=True):
        if not task.done():
            what = ", ".join(node.waits()) or "something outside the transport"
            lines.append(f"rank {node.rank} ({node.name}) waits for {what}{_place(task)}")
    return lines


def _place(task: SimTask[Any]) -> str:
    """Return ' at file:line' of the innermost frame in the algorithm's code."""
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
    return "/simcluster_backends/" in path or "asyncio" in path or path.endswith("/simcluster/inbox.py")
