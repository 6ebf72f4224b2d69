"""Run an event loop until a node's main task is done, on every backend that runs in real time.

A sys.exit() in any task stops asyncio's whole loop. A node would then end without a report, so the
loop is started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from simcluster.process.interrupts import PATIENCE_S, CtrlC

T = TypeVar("T")

KEEPER = "keeps the loop running"
"""The name of the backend's own tasks, which are spared when the program's tasks are cancelled."""
LEAVE_S = 1.0
"""The time that cancelled tasks have to end before the loop closes."""

log = logging.getLogger("simcluster")


def run_to_its_end(
    main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Return or raise the outcome of *main* in a loop from *loop_factory*; a Ctrl-C cancels *main*.

    A sys.exit() in one task affects only the tasks that await this task. At the end, tasks that
    resist cancellation are abandoned.
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


def outside_loops(run: Callable[[], T]) -> T:
    """Call *run*, which runs an event loop, and return its result.

    If a loop already runs in this thread, as in a notebook, call *run* in another one.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def end_programs_tasks() -> None:
    """Cancel the tasks that the program started and did not await."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name() != KEEPER:
            task.cancel()


async def finished(task: asyncio.Task[Any]) -> None:
    """Wait until *task* is done, however it ends. If cancelled meanwhile, cancel *task*, too."""
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
    if stubborn:  # `runner.close` would wait for these tasks forever
        log.warning("left behind: %s", ", ".join(other.get_name() for other in stubborn))
        asyncio.set_event_loop(None)
        loop.close()
    else:
        runner.close()
