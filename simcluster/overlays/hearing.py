"""Functions that return a message or a PeerLost as a value, with and without waiting for it."""

from __future__ import annotations

import asyncio

from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.transport import OWN_TAGS, Any_, Transport

NEVER_SENT = f"{OWN_TAGS}never sent"
"""A tag that no message has, so a receive under this tag can only raise a PeerLost."""

TURNS = 4
"""The number of turns of the event loop after which a recv has returned a message or raised a loss
that was there when it was called.
"""


async def arrival(node: Transport, source: int | Any_, tag: str) -> Message | PeerLost:
    """Wait for the next message from *source* under *tag*, or for the next loss, and return it."""
    try:
        return await node.recv(source, tag)
    except PeerLost as lost:
        return lost


async def heard(node: Transport, source: int | Any_, tag: str = NEVER_SENT) -> Message | PeerLost | None:
    """Return the next message from *source* under *tag*, or the next loss, if it is there already;
    otherwise return None.

    A lost peer can rejoin only after this node has seen the loss, so call this function even if no
    message is expected.
    """
    receiving = asyncio.ensure_future(node.recv(source, tag))
    try:
        for _ in range(TURNS):
            await asyncio.sleep(0)
    finally:
        receiving.cancel()
        (found,) = await asyncio.gather(receiving, return_exceptions=True)
    if isinstance(found, asyncio.CancelledError):
        return None
    if isinstance(found, BaseException) and not isinstance(found, PeerLost):
        raise found
    return found
