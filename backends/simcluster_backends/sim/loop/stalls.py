"""Reports where a simulation is that has not let go of its event loop for long. It decides nothing."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from simcluster.process.places import place
from simcluster_backends.sim.loop.event_loop import SimLoop
from simcluster_backends.sim.loop.tasks import SimTask

STALL_S, WORK_S = 30.0, 300.0
"""A callback that runs for this long is reported; one that works on a device, or evaluates, only after the second."""

PERIOD_S = 1.0

WORKING = ("simcluster/compute/at_work.py", "simcluster/workloads/evaluation.py", "sim/loop/workers.py")
"""Files of the library that call user code which may take long."""

log = logging.getLogger("simcluster.sim")


@contextmanager
def stalls_reported(loop: SimLoop) -> Iterator[None]:
    """Report, by the wall clock, each callback of *loop* that stalls; this thread runs the loop."""
    over, thread = threading.Event(), threading.get_ident()
    watch = threading.Thread(target=_watch, args=(loop, thread, over), name="stalls", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(loop: SimLoop, thread: int, over: threading.Event) -> None:
    turns, since_s, told = -1, 0.0, False
    while not over.wait(PERIOD_S):
        now_s = time.monotonic()
        if loop.turns != turns:
            turns, since_s, told = loop.turns, now_s, False
        elif not told:
            frame = sys._current_frames().get(thread)
            if now_s - since_s >= (WORK_S if _works(frame) else STALL_S) and loop.is_running():
                told = True
                text = "%s is at %s, for %.0f s without an await: virtual time stands still meanwhile"
                log.warning(text, _owner(loop), place(frame), now_s - since_s)


def _works(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.replace("\\", "/").endswith(WORKING):
            return True
        frame = frame.f_back
    return False


def _owner(loop: SimLoop) -> str:
    """Return the rank and name of the node that the loop runs a task of."""
    task = asyncio.current_task(loop)
    owner = task.owner if isinstance(task, SimTask) else None
    rank, name = getattr(owner, "rank", None), getattr(owner, "name", "")
    return "the simulation" if rank is None else f"rank {rank} ({name})"
