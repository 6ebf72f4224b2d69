"""Tie a command to the process that started it: it ends with that process, however that ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from simcluster.process.signals import kill_group

LEAVE_S = 20.0
"""The time after the Ctrl-C at which a command that has not ended is killed."""

TIED = (
    sys.executable,
    "-c",
    "import runpy; from simcluster.process.tied import tie; tie(); "
    "runpy.run_module('simcluster', run_name='__main__', alter_sys=True)",
)
"""The start of a command line of `simcluster`.

Run it in a new session, with a pipe as standard input.
"""


def tie() -> None:
    """Send this process a Ctrl-C when its standard input closes, and kill its group if that does
    not help.
    """
    held = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # no process that the command starts may wait for input
    threading.Thread(target=_follow, args=(held,), daemon=True).start()


def _follow(held: int) -> None:
    while os.read(held, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(LEAVE_S)
    kill_group(os.getpid())
