"""Poll a node for a message or a peer's loss, without waiting for either."""

from __future__ import annotations

import asyncio
from typing import Final

from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.transport import OWN_TAGS, Any_, Transport

NEVER_SENT: Final = f"{OWN_TAGS}never sent"
"""A tag that is never sent, to receive only losses."""

TURNS: Final = 4
"""Turns of the loop within which a recv returns an available message, or raises."""


async def arrival(node: Transport, source: int | Any_, tag: str) -> Message | PeerLost:
    """Wait for the next message from *source* under *tag*, or for the next loss."""
    try:
        return await node.recv(source, tag)
    except PeerLost as lost:
        return lost


async def heard(node: Transport, source: int | Any_, tag: str = NEVER_SENT) -> Message | PeerLost | None:
    """Return the next message from *source* under *tag*, or the next loss, if it has arrived; else None.

    A lost peer can rejoin only after its loss has been raised here, even if no message from it is awaited.
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
