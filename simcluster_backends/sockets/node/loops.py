"""Which event loop a node runs on, uvloop where it is installed and asyncio's own elsewhere; and how it is run.

Both loops keep every promise; uvloop takes about half as long per message.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simcluster.errors import Problem, UsageError
from simcluster_backends.common.event_loop import run_in
from simcluster_backends.sockets.node.order import counting_loop

T = TypeVar("T")


def run_to_its_end(main: Coroutine[Any, Any, T], uvloop: bool | None = None, *, counts: bool = False) -> T:
    """Like asyncio.run, but a sys.exit() in some task is that task's exception, for whoever awaits it.

    asyncio stops the whole loop there; a node would end without a word about what happened.
    """
    runner = asyncio.Runner(loop_factory=loop_factory(uvloop, counts=counts))
    return run_in(runner, main, runner)


def loop_factory(uvloop: bool | None = None, *, counts: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes loops for asyncio.Runner. None takes uvloop if it is there; True insists or raises UsageError.

    One that *counts* is one that a run can be replayed from.
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
