"""How a loop is run until a node's own task is done, on every backend where time is real.

asyncio stops the whole loop at a sys.exit() in some task, and a node would end without a word about what happened. This
file knows asyncio's tasks, and what a Ctrl-C does to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

from simcluster.interrupts import PATIENCE_S, CtrlC

T = TypeVar("T")

KEEPER = "keeps the loop running"
"""The name of a task that whoever ends all tasks must leave alone."""


def run_in(runner: asyncio.Runner, main: Coroutine[Any, Any, T], closing: AbstractContextManager[object]) -> T:
    """Return what *main* returns in the loop of *runner*, or raise what it raises; a Ctrl-C cancels it first.

    *closing* closes the runner at its end. A sys.exit() in some task is that task's exception, for its awaiter.
    """
    loop = runner.get_loop()
    task = loop.create_task(main)

    def stop() -> None:
        ctrl_c.heard()
        task.cancel("interrupted")

    def ask() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    with CtrlC(ask, PATIENCE_S) as ctrl_c, closing:
        while not task.done():
            with suppress(SystemExit):
                runner.run(finished(task))
        return task.result()


async def finished(task: asyncio.Task[Any]) -> None:
    """Returns when *task* is done, however it ends; a Ctrl-C cancels it first."""
    keeper = asyncio.current_task()
    assert keeper is not None
    keeper.set_name(KEEPER)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel("interrupted")
        await asyncio.wait([task])
        raise
