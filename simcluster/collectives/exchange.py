"""The step that every ring is made of: send one way while receiving from the other.

This file knows two peers and one tag. It must not know what is exchanged.
"""

from __future__ import annotations

import asyncio

from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


async def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Message:
    """Sends *content* to rank *to* and receives from rank *source*, both under *tag*, at the same time."""
    async with asyncio.TaskGroup() as group:
        group.create_task(node.send(to, tag, content))
        receiving = group.create_task(node.recv(source, tag))
    return receiving.result()
