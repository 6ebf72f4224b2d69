"""How a process may start others that need what it has loaded: as forks of it, or by spawn, as fresh interpreters."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from simcluster.errors import Problem, UsageError

Way: TypeAlias = Literal["fork", "spawn"]

VARIABLE = "SIMCLUSTER_START"
"""Environment variable; "spawn" starts fresh interpreters where a fork would be safe, too."""


def way_to_start(environment: Mapping[str, str] = os.environ) -> Way:
    """Return how this process may start others now: fork where that is safe.

    It is not on macOS, where Apple's frameworks (Accelerate and Metal, which torch uses) abort or hang in a fork; not
    once an accelerator was initialised here, since its driver's state does not survive a fork; and Windows has none.
    Raise UsageError if the variable in *environment* asks for something else.
    """
    wanted = environment.get(VARIABLE, "")
    if wanted not in ("", "spawn"):
        raise UsageError(Problem(VARIABLE, repr(wanted), "spawn, or no such variable: fork where that is safe"))
    if wanted or sys.platform in ("darwin", "win32") or _accelerator_was_initialised():
        return "spawn"
    return "fork"


def begin_process(modules: Sequence[str]) -> None:
    """Let those of *modules* that are loaded and have a function `before_threads` do what this process needs first."""
    for name in modules:
        getattr(sys.modules.get(name), "before_threads", lambda: None)()


def _accelerator_was_initialised() -> bool:
    torch = sys.modules.get("torch")
    devices = [getattr(torch, name, None) for name in ("cuda", "xpu")]
    return any(device is not None and device.is_initialized() for device in devices)
