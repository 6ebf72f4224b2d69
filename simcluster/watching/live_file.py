"""A run in progress, as a file in its folder: written by the run for other processes, such as `simcluster ui`.

It is an observation: no result, digest or decision depends on it, and it is removed when the run ends. A run shorter
than FIRST_S, or than a look at all its nodes allows, writes none.
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
from simcluster.watching.telling import map_of
from simcluster.watching.watcher import SHARE, IntervalWatcher

FIRST_S, INTERVAL_S = 1.0, 1.0
MOST_BYTES = 32 << 20
NODE_S = 1e-4
"""About the time that a look takes for each node. The first look comes once it fits the share that watching may take.
"""

ELSEWHERE_S = 30.0
"""The file of a run on another machine is believed for as long: its process cannot be asked for."""


class LiveFile:
    """A watcher that writes the state of a run to LIVE in *folder*, at most once per second, until `close`."""

    def __init__(self, folder: Path, topology: Topology, first_s: float | None = None) -> None:
        self._folder, self._topology = folder, topology
        self._there = False
        self._absent = [one for one in (folder, *folder.parents) if not one.exists()]
        self._map: Any = None
        if first_s is None:
            first_s = max(FIRST_S, len(topology.workers) * NODE_S / SHARE)
        watching = IntervalWatcher(self._write, INTERVAL_S, first_s=first_s)
        self.begin: Callable[[RunInfo], None] = watching.begin
        self.look: Callable[[Callable[[], Telemetry]], None] = watching.look

    def end(self, telemetry: Telemetry | None, error: str) -> None:
        """Do nothing: the run's results follow, or its error."""

    def close(self) -> None:
        """Remove the file, and the directories that only the file needed."""
        if not self._there:
            return
        remove(self._folder, LIVE)
        with suppress(OSError):  # the run's own files are there
            for folder in self._absent:
                os.rmdir(folder)

    def _write(self, run: dict[str, Any], history: list[dict[str, Any]]) -> None:
        if not self._there:
            drawn = map_of(self._topology)
            self._map = drawn.model_dump() if drawn is not None else None
        self._there = True
        found = {"pid": os.getpid(), "host": platform.node(), "run": {**run, "map": self._map}, "history": history}
        content = msgspec.json.encode(found)  # null for numbers that are not finite
        with suppress(OSError), opened(self._folder, make=True):  # the run itself says where it cannot write
            write_whole(self._folder, LIVE, content=content, durable=False)


def read_live(folder: Path) -> dict[str, Any] | None:
    """Return what the run in *folder* wrote last, with "alive": whether it still runs. None if there is no such file.

    Raises ValueError for a file with something else.
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
