"""The task that keeps a loop running until a node's own is done, on every backend where time is real.

This file knows asyncio's tasks. It must not know what runs.
"""

from __future__ import annotations

import asyncio
from typing import Any

KEEPER = "keeps the loop running"
"""The name of a task that whoever ends all tasks must leave alone."""


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
