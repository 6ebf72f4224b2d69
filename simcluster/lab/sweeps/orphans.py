"""Silence the traceback of a worker that cannot start because its sweep has ended.

Only the fork server imports this module. Ctrl-C kills the fork server; a worker forked at that
moment then fails, since its sweep has removed what the worker needs.
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
