"""End a child process with all processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GRACE_S = 5.0
"""How long a killed child may take to end."""


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill *process*, which has a group of processes, that group, and all that it started."""
    below = descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for number in below:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait(GRACE_S)


def descendants(number: int) -> list[int]:
    """Return the processes that *number* started, directly or not; nodes have their own groups."""
    parents = dict(processes())
    found = [number]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def processes() -> Iterator[tuple[int, int]]:
    """Yield (process, its parent) for all processes; a bare Linux may lack `ps`."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
        yield from ((int(pid), int(parent)) for pid, parent in (line.split() for line in listed.splitlines()))
        return
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process may have ended
            # The name in brackets may contain anything; its state and its parent follow.
            yield int(file.parent.name), int(file.read_text(errors="replace").rpartition(")")[2].split()[1])
