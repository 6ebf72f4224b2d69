"""Which event loop a node runs on: uvloop where it is installed, asyncio's own elsewhere.

This file must not know what runs on it. Both keep every promise; uvloop takes about half as long per message.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable

from simcluster.errors import Problem, UsageError


def loop_factory(uvloop: bool | None = None) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes loops for asyncio.Runner. None takes uvloop if it is there; True insists or raises UsageError."""
    present = importlib.util.find_spec("uvloop") is not None
    if uvloop and not present:
        raise UsageError(Problem("uvloop", "true", "uvloop to be installed: pip install 'simcluster[uvloop]'"))
    if present and uvloop is not False:
        import uvloop as module

        factory: Callable[[], asyncio.AbstractEventLoop] = module.new_event_loop
        return factory
    return asyncio.new_event_loop
