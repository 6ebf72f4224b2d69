"""A server and its workers in few waits: where a transport has a shorter way, simcluster.transport.OptionalVerbs's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from simcluster.errors import PeerLost
from simcluster.overlays.hearing import arrival
from simcluster.payload import Message, Sendable
from simcluster.transport import ANY, OptionalVerbs, Transport

Over = Callable[[int, bool], object]
"""Called with a rank that a message was for, and whether that rank is lost."""


def ask(node: Transport, to: int, tag: str, content: Sendable, answer: str) -> Coroutine[Any, Any, Message]:
    """Send *content* to rank *to* under *tag*, then receive from that rank under *answer*."""
    quicker: Callable[..., Coroutine[Any, Any, Message]] | None = getattr(node, "ask", None)
    return quicker(to, tag, content, answer) if quicker else _ask(node, to, tag, content, answer)


async def _ask(node: Transport, to: int, tag: str, content: Sendable, answer: str) -> Message:
    await node.send(to, tag, content)
    return await node.recv(to, answer)


async def arrivals(node: Transport, tag: str, most: int) -> list[Message | PeerLost]:
    """Wait for the next messages from any ranks under *tag*, at least one and at most *most*, and for the next loss."""
    if most == 1 or not hasattr(node, "gather"):
        return [await arrival(node, ANY, tag)]
    messages: list[Message] = []
    try:
        await cast(OptionalVerbs, node).gather(tag, most, messages)
    except PeerLost as lost:
        return [*messages, lost]
    return list(messages)


def sends(
    node: Transport, to: Sequence[int], tag: str, content: Sendable, over: Over
) -> list[Coroutine[Any, Any, None]]:
    """Return what sends *content* to each of the ranks *to* under *tag*, for a task each; see `Over`."""
    if hasattr(node, "send_each") and len(to) > 1:
        together = cast(OptionalVerbs, node).send_each(to, tag, content, over)
        if together is not None:
            return [together]
    return [_send(node, rank, tag, content, over) for rank in to]


async def _send(node: Transport, to: int, tag: str, content: Sendable, over: Over) -> None:
    is_lost = False
    try:
        await node.send(to, tag, content)
    except PeerLost:
        is_lost = True
    finally:
        over(to, is_lost)
