"""Report where a simulation is if one callback has blocked its event loop for a long time.

A report changes nothing in the run.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from simcluster.process.own_frames import place
from simcluster_backends.sim.loop.event_loop import SimLoop, SimTask

STALL_S, WORK_S = 30.0, 300.0
"""A callback is reported after STALL_S, or after WORK_S if it works on a device or evaluates."""

PERIOD_S = 1.0
"""The time between two checks of the loop."""

WORKING = ("simcluster/compute/at_work.py", "simcluster/workloads/evaluation.py", "sim/loop/workers.py")
"""Library files that call user code that may run for a long time."""

log = logging.getLogger("simcluster.sim")


@contextmanager
def stalls_reported(loop: SimLoop) -> Iterator[None]:
    """Report each callback of *loop* that stalls in real time. The loop must run in this thread."""
    over = threading.Event()
    thread = threading.get_ident()
    watch = threading.Thread(target=_watch, args=(loop, thread, over), name="stalls", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(loop: SimLoop, thread: int, over: threading.Event) -> None:
    turns = -1
    since_s = 0.0
    is_reported = False
    while not over.wait(PERIOD_S):
        now_s = time.monotonic()
        if loop.turns != turns:  # another callback than at the last check
            turns = loop.turns
            since_s = now_s
            is_reported = False
        elif not is_reported:
            frame = sys._current_frames().get(thread)
            if now_s - since_s >= (WORK_S if _works(frame) else STALL_S) and loop.is_running():
                is_reported = True
                text = "%s is at %s, for %.0f s without an await: virtual time stands still meanwhile"
                log.warning(text, _owner(loop), place(frame), now_s - since_s)


def _works(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith(WORKING):
            return True
        frame = frame.f_back
    return False


def _owner(loop: SimLoop) -> str:
    """Return the rank and name of the node with the task that the loop runs now."""
    task = asyncio.current_task(loop)
    owner = task.owner if isinstance(task, SimTask) else None
    rank, name = getattr(owner, "rank", None), getattr(owner, "name", "")
    return "the simulation" if rank is None else f"rank {rank} ({name})"
