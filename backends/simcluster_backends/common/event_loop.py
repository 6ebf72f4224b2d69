"""An event loop that runs until a node's main task is done, on every backend with real time.

At a sys.exit() in any task, asyncio stops the whole loop, and a node would end without reporting what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from simcluster.process.interrupts import PATIENCE_S, CtrlC

T = TypeVar("T")

KEEPER = "keeps the loop running"
"""The name of tasks that are not the program's: they survive when all of its tasks are cancelled."""
LEAVE_S = 1.0
"""Time for cancelled tasks to end when the loop does."""

log = logging.getLogger("simcluster")


def run_to_its_end(
    main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Return or raise the outcome of *main* in a loop from *loop_factory*; a Ctrl-C cancels it first.

    A sys.exit() in a task becomes its exception, raised to its awaiter. A task that resists cancellation is left alone.
    """
    runner = asyncio.Runner(loop_factory=loop_factory)
    loop = runner.get_loop()
    task = loop.create_task(main)

    def stop() -> None:
        ctrl_c.heard()
        task.cancel("interrupted")

    def ask() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    with CtrlC(ask, PATIENCE_S) as ctrl_c:
        try:
            while not task.done():
                with suppress(SystemExit):
                    runner.run(finished(task))
            return task.result()
        finally:
            _close(runner)


async def finished(task: asyncio.Task[Any]) -> None:
    """Return when *task* is done, however it ends; a Ctrl-C cancels it first."""
    keeper = asyncio.current_task()
    assert keeper is not None
    keeper.set_name(KEEPER)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel("interrupted")
        await asyncio.wait([task])
        raise


def _close(runner: asyncio.Runner) -> None:
    """Close *runner*, even if a task does not end."""
    loop = runner.get_loop()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    stubborn = loop.run_until_complete(asyncio.wait(left, timeout=LEAVE_S))[1] if left else ()
    if stubborn:  # a runner would wait for them forever
        log.warning("left behind: %s", ", ".join(other.get_name() for other in stubborn))
        asyncio.set_event_loop(None)
        loop.close()
    else:
        runner.close()
