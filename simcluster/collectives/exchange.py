"""The step that every ring consists of: send to one rank while receiving from another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Coroutine[Any, Any, Message]:
    """Send *content* to rank *to* and receive from rank *source*, both under *tag*, concurrently.

    Fails as soon as either half does. This is the inner loop of every collective: see simcluster.transport.Accelerated.
    """
    quicker: Callable[..., Coroutine[Any, Any, Message]] | None = getattr(node, "exchange", None)
    return quicker(to, source, tag, content) if quicker else _exchange(node, to, source, tag, content)


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
