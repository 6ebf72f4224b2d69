"""The event loop of a node: uvloop's if it is installed, else asyncio's.

Both satisfy every guarantee; uvloop takes about half the time per message.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable

from simcluster.errors import Problem, UsageError
from simcluster_backends.sockets.node.order import counting_loop


def loop_factory(uvloop: bool | None = None, *, counts: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops. None uses uvloop if installed; True requires it or raises UsageError.

    A run can be replayed from a loop that *counts*.
    """
    present = importlib.util.find_spec("uvloop") is not None
    if uvloop and not present:
        raise UsageError(Problem("uvloop", "true", "uvloop to be installed: pip install 'simcluster[uvloop]'"))
    if counts:
        return counting_loop(present and uvloop is not False)
    if present and uvloop is not False:
        import uvloop as module

        factory: Callable[[], asyncio.AbstractEventLoop] = module.new_event_loop
        return factory
    return asyncio.new_event_loop
