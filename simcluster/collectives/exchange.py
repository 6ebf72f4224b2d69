"""Functions that run the rounds of a schedule.

In a round, a rank sends to one rank while it receives from another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from torch import Tensor

from simcluster.collectives.held_parts import PartHolder
from simcluster.payload import Message, Sendable, lend
from simcluster.rounds import NO_RANK, Rounds
from simcluster.shortcuts import shortcuts_of
from simcluster.transport import Transport


def exchange(node: Transport, to: int, source: int, tag: str, content: Sendable) -> Coroutine[Any, Any, Message]:
    """Send *content* to rank *to* and receive from rank *source* concurrently, both under *tag*;
    return the message.

    Fail as soon as either half fails. This is the inner loop of most collectives, so a transport
    may have a shortcut for it: see simcluster.shortcuts.
    """
    fast = shortcuts_of(node)
    if fast is not None and fast.exchange is not None:
        return fast.exchange(to, source, tag, content)
    return _exchange(node, to, source, tag, content)


async def skipped(node: Transport, rounds: Rounds) -> int:
    """Return how many of *rounds*, from the first, the transport has done by itself. See
    `Shortcuts.rounds_ahead`.
    """
    vector, fast = rounds.vector, shortcuts_of(node)
    if rounds.name is None or not vector.is_meta or vector.dim() != 1 or fast is None or fast.rounds_ahead is None:
        return 0
    return await fast.rounds_ahead(rounds)


async def run_rounds(node: Transport, rounds: Rounds, held: PartHolder | None = None, over: int | None = None) -> None:
    """Send this rank's messages of *rounds* and receive those for it. Their tensors are read from
    and stored in *held*; if it is None, messages have no values.

    Skip the first *over* rounds, by default those that the transport has done by itself.
    """
    if over is None:
        over = await skipped(node, rounds) if rounds.vector.is_meta else 0
    for number, (to, source, gives, takes, adds, suffix) in enumerate(rounds.steps(node.rank, over), over):
        tag = rounds.prefix + suffix
        if to != NO_RANK:
            content = rounds.content(number, node.rank) if held is None else lend(*map(held.__getitem__, gives))
            if source == NO_RANK:
                await node.send(to, tag, content)
                continue
            message = await exchange(node, to, source, tag, content)
        elif source != NO_RANK:
            message = await node.recv(source, tag)
        else:
            continue
        if held is None:
            continue
        for part, tensor in zip(takes, message.tensors, strict=True):
            own = held[part] if adds else None
            if own is not None and tensor.shape != own.shape:
                raise _unequal(message, tensor, own)
            held.take(part, tensor, own)


def _unequal(message: Message, tensor: Tensor, own: Tensor) -> ValueError:
    what = f"rank {message.source} has sent {tensor.numel()} numbers for {own.numel()} here under {message.tag!r}"
    return ValueError(f"{what}; expected vectors of one length")


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
