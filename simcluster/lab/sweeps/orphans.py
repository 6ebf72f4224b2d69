"""Silences a worker that cannot start because its sweep has ended. Only the process that forks workers imports this.

A Ctrl-C kills that process. A worker just forked then finds nothing of what its sweep had set up for it.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

_SERVER = os.getpid()


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if os.getppid() == _SERVER:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _tell
