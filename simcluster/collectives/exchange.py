"""The step that every ring is made of: send one way while receiving from the other.

This file knows two peers and one tag. It must not know what is exchanged.
"""

from __future__ import annotations

import asyncio

from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


async def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Message:
    """Sends *content* to rank *to* and receives from rank *source*, both under *tag*, at the same time."""
    # One task, not a TaskGroup of two: this is the inner loop of every collective.
    sending = asyncio.create_task(node.send(to, tag, content))
    try:
        message = await node.recv(source, tag)
        await sending
    except BaseException:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        raise
    return message
