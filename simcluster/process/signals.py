"""End other processes: with signals on Unix, and by other means on Windows."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def kill(pid: int) -> None:
    """End process *pid* at once. Raise OSError if that fails."""
    if sys.platform == "win32":
        os.kill(pid, signal.SIGTERM)  # Windows has no SIGKILL, and terminates the process for this
    else:
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """End the process group of *pid*, if it still runs; on Windows, only the process."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            kill(pid)
        else:
            os.killpg(pid, signal.SIGKILL)
