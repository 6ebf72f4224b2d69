"""How a node's loop is run: like asyncio.run, but a sys.exit() in some task is that task's exception.

asyncio stops the whole loop there, and a node would end without a word about what happened. This file must not know
what runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from simcluster_backends.common.event_loop import run_in

T = TypeVar("T")

log = logging.getLogger("simcluster.torch")

LEAVE_S = 1.0


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """What *main* returns or raises; a Ctrl-C cancels it first."""
    runner = asyncio.Runner()
    return run_in(runner, main, _closing(runner))


@contextlib.contextmanager
def _closing(runner: asyncio.Runner) -> Iterator[None]:
    """Close *runner* at the end, even if some task does not end."""
    loop = runner.get_loop()
    try:
        yield
    finally:
        stubborn = _cancel_all(loop)
        if stubborn:  # a runner would wait for them for ever
            log.warning("left behind: %s", ", ".join(other.get_name() for other in stubborn))
            asyncio.set_event_loop(None)
            loop.close()
        else:
            runner.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    """Cancels what still runs; returns what will not end."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    return loop.run_until_complete(asyncio.wait(left, timeout=LEAVE_S))[1] if left else set()
