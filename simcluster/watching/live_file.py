"""Write the state of a run in progress to a file, for processes such as `simcluster ui`.

No result, digest or decision depends on this live file, and it is removed when the run ends. A
short run writes none: the first state is due after FIRST_S, or later with many nodes.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil

from simcluster.paths.inside import opened, read, remove, write_whole
from simcluster.runs.folder import LIVE
from simcluster.topology import Topology
from simcluster.watching.board import RunInfo, Telemetry
from simcluster.watching.status import Values
from simcluster.watching.telling import map_of
from simcluster.watching.watcher import SHARE, IntervalWatcher

FIRST_S, INTERVAL_S = 1.0, 1.0
MOST_BYTES = 32 << 20
NODE_S = 1e-4
"""The approximate time per node of taking the state of a run.

The first state is taken when this time is within the share for watching.
"""

ELSEWHERE_S = 30.0
"""The age of the file from which a run on another machine counts as dead.

The process of such a run cannot be looked up.
"""


class LiveFile:
    """A watcher that writes the state of a run to LIVE in *folder*, at most once per second."""

    def __init__(self, folder: Path, topology: Topology, first_s: float | None = None) -> None:
        self._folder = folder
        self._topology = topology
        self._there = False
        self._absent = [one for one in (folder, *folder.parents) if not one.exists()]
        self._map: Any = None
        if first_s is None:
            first_s = max(FIRST_S, len(topology.workers) * NODE_S / SHARE)
        watching = IntervalWatcher(self._write, INTERVAL_S, first_s=first_s)
        self.begin: Callable[[RunInfo], None] = watching.begin
        self.look: Callable[[Callable[[], Telemetry]], None] = watching.look

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        """Do nothing: the run writes its results or its error next."""

    def close(self) -> None:
        """Remove the file, and the directories that only the file needed."""
        if not self._there:
            return
        remove(self._folder, LIVE)
        with suppress(OSError):  # a directory with the run's results is not empty, and stays
            for folder in self._absent:
                os.rmdir(folder)

    def _write(self, run: Values, history: list[Values]) -> None:
        if not self._there:
            drawn = map_of(self._topology)
            self._map = drawn.model_dump() if drawn is not None else None
        self._there = True
        found = {"pid": os.getpid(), "host": platform.node(), "run": {**run, "map": self._map}, "history": history}
        content = msgspec.json.encode(found)  # numbers that are not finite become null
        # If the folder cannot be written, the run itself reports it.
        with suppress(OSError), opened(self._folder, make=True):
            write_whole(self._folder, LIVE, content=content, durable=False)


def read_live(folder: Path) -> Values | None:
    """Return the state that the run in *folder* wrote last; None if there is no live file.

    Its key "alive" says whether the run is still in progress. Raise ValueError if the file is
    invalid.
    """
    try:
        content = read(folder, LIVE, most_bytes=MOST_BYTES)
        age_s = time.time() - os.stat(folder / LIVE, follow_symlinks=False).st_mtime
    except OSError:
        return None
    try:
        found = msgspec.json.decode(content)
        run, history = found["run"], found["history"]
        lists = [history, *(run[key] for key in ("nodes", "links", "warnings"))]
        if not all(isinstance(one, list) and all(isinstance(row, dict) for row in one) for one in lists):
            raise TypeError("expected lists of mappings")
        pid, host = int(found["pid"]), str(found["host"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder / LIVE} is no state of a run: {error}") from None
    alive = psutil.pid_exists(pid) if host == platform.node() else age_s < ELSEWHERE_S
    return {"run": run, "history": history, "alive": alive, "pid": pid}
