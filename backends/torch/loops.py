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

from simcluster.interrupts import PATIENCE_S, CtrlC
from simcluster.keeper import finished

T = TypeVar("T")

log = logging.getLogger("simcluster.torch")

LEAVE_S = 1.0


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """What *main* returns or raises; a Ctrl-C cancels it first."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    task = loop.create_task(main)

    def stop() -> None:
        ctrl_c.heard()
        task.cancel("interrupted")

    def ask() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    with CtrlC(ask, PATIENCE_S) as ctrl_c, _closing(runner):
        while not task.done():
            with contextlib.suppress(SystemExit):
                runner.run(finished(task))
        return task.result()


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
