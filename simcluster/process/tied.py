"""A command tied to the process that started it: it ends with that one, however that one ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Final

from simcluster.process.signals import kill_group

LEAVE_S: Final = 20.0
"""A command that Ctrl-C has not ended by then is killed."""

TIED: Final = (
    sys.executable,
    "-c",
    "import runpy; from simcluster.process.tied import tie; tie(); "
    "runpy.run_module('simcluster', run_name='__main__', alter_sys=True)",
)
"""Begins the command line of `simcluster`, for a process in a session of its own with a pipe as standard input."""


def tie() -> None:
    """Press Ctrl-C once the standard input of this process closes, and kill its group if that does not help."""
    held = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # nothing that the command starts waits for input
    threading.Thread(target=_follow, args=(held,), daemon=True).start()


def _follow(held: int) -> None:
    while os.read(held, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(LEAVE_S)
    kill_group(os.getpid())
