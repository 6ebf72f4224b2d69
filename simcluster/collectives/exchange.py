"""The step that every ring consists of: send to one rank while receiving from another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from simcluster.payload import Message, Sendable
from simcluster.rounds import NO_RANK, Rounds
from simcluster.transport import OptionalVerbs, Transport


def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Coroutine[Any, Any, Message]:
    """Send *content* to rank *to* and receive from rank *source*, both under *tag*, concurrently.

    Fails as soon as either half does. This is the inner loop of every collective: see
    simcluster.transport.OptionalVerbs.
    """
    quicker: Callable[..., Coroutine[Any, Any, Message]] | None = getattr(node, "exchange", None)
    return quicker(to, source, tag, content) if quicker else _exchange(node, to, source, tag, content)


async def skipped(node: Transport, rounds: Rounds) -> int:
    """Return how many of the first *rounds* the transport has done by itself: see `OptionalVerbs.rounds_ahead`."""
    return await cast(OptionalVerbs, node).rounds_ahead(rounds) if hasattr(node, "rounds_ahead") else 0


async def run_rounds(node: Transport, rounds: Rounds) -> None:
    """Send the messages of *rounds* and receive those of others."""
    await run_rounds_from(await skipped(node, rounds), node, rounds)


async def run_rounds_from(first: int, node: Transport, rounds: Rounds) -> None:
    """Send and receive the messages of *rounds* from number *first* on."""
    rank = node.rank
    for number in range(first, rounds.count):
        to, source, tag = int(rounds.to(number, rank)), int(rounds.source(number, rank)), rounds.tag(number)
        if to != NO_RANK and source != NO_RANK:
            await exchange(node, to, source, tag, rounds.content(number, rank))
        elif to != NO_RANK:
            await node.send(to, tag, rounds.content(number, rank))
        elif source != NO_RANK:
            await node.recv(source, tag)


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
