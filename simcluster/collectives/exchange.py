"""The step that every ring is made of: send one way while receiving from the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Coroutine[Any, Any, Message]:
    """Sends *content* to rank *to* and receives from rank *source*, both under *tag*, at the same time.

    Fails as soon as either half does. A transport may have an `exchange` of its own that promises the same and costs
    less: this is the inner loop of every collective.
    """
    of_its_own = getattr(node, "exchange", None)
    if of_its_own is not None:
        its: Coroutine[Any, Any, Message] = of_its_own(to, source, tag, content)
        return its
    return _exchange(node, to, source, tag, content)


async def _exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Message:
    sending = asyncio.create_task(node.send(to, tag, content))
    receiving = asyncio.create_task(node.recv(source, tag))
    try:
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_EXCEPTION)
        for half in (sending, receiving):
            if half.done():
                half.result()
        return receiving.result()
    finally:
        for half in (sending, receiving):
            half.cancel()
        await asyncio.gather(sending, receiving, return_exceptions=True)
