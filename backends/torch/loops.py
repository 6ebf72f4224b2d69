"""How a node's loop is run: like asyncio.run, but a sys.exit() in some task is that task's exception.

asyncio stops the whole loop there, and a node would end without a word about what happened. This file must not know
what runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

KEEPER = "keeps the loop running"
"""The name of a task that whoever ends all tasks must leave alone."""


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """What *main* returns or raises; a Ctrl-C cancels it first."""
    with asyncio.Runner() as runner:
        task = runner.get_loop().create_task(main)
        while not task.done():
            with contextlib.suppress(SystemExit):
                runner.run(_finished(task))
        return task.result()


async def _finished(task: asyncio.Task[Any]) -> None:
    keeper = asyncio.current_task()
    assert keeper is not None
    keeper.set_name(KEEPER)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel("interrupted")
        await asyncio.wait([task])
        raise
