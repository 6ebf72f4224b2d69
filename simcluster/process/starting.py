"""Choose how a process starts others that need its modules: by fork, or as fresh interpreters."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from simcluster.errors import UsageError

Way = Literal["fork", "spawn"]

VARIABLE = "SIMCLUSTER_START"
"""The environment variable that can be set to "spawn", to start fresh interpreters even where a
fork is safe.
"""


def way_to_start(environment: Mapping[str, str] = os.environ) -> Way:
    """Return "fork" if this process can safely start others by a fork now, else "spawn".

    A fork is not safe on macOS, where Apple's frameworks (Accelerate and Metal, which torch uses)
    abort or hang in a forked process. It is not safe after an accelerator was initialised, since
    the state of its driver does not survive. Windows has no fork. Raise UsageError if VARIABLE in
    *environment* has any value other than "spawn".
    """
    wanted = environment.get(VARIABLE, "")
    if wanted not in ("", "spawn"):
        raise UsageError(VARIABLE, repr(wanted), "spawn, or no such variable: fork where that is safe")
    if wanted or sys.platform in ("darwin", "win32") or _accelerator_was_initialised():
        return "spawn"
    return "fork"


def begin_process(modules: Sequence[str]) -> None:
    """Call `before_threads` of each of *modules* that is loaded and has this function.

    Call this in a new process before any thread of it starts.
    """
    for name in modules:
        getattr(sys.modules.get(name), "before_threads", lambda: None)()


def _accelerator_was_initialised() -> bool:
    torch = sys.modules.get("torch")
    devices = [getattr(torch, name, None) for name in ("cuda", "xpu")]
    return any(device is not None and device.is_initialized() for device in devices)
