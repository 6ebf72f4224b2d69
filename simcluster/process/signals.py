"""Signals that end processes, on systems with and without them."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def kill(pid: int) -> None:
    """End process *pid* at once. Raise OSError."""
    if sys.platform == "win32":
        os.kill(pid, signal.SIGTERM)  # any signal ends it there
    else:
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int) -> None:
    """End the process group of *pid*, if it still runs; on Windows, which has none, the process."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            kill(pid)
        else:
            os.killpg(pid, signal.SIGKILL)
