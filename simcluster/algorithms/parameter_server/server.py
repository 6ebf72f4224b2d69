"""Helpers that the pages of the parameter servers share: trainers, the mean of gradients, replies, cancelled work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.payload import Message
from simcluster.transport import Transport
from simcluster.workloads import Batch, Replica

T = TypeVar("T")

SERVER = 0


def trainers(size: int, server_trains: bool) -> list[int]:
    """The ranks that compute gradients. Raises UsageError if there are none."""
    ranks = [rank for rank in range(size) if server_trains or rank != SERVER]
    if not ranks:
        found = "false in a world of one rank, which is the server: nobody trains"
        raise UsageError(Problem("server_trains", found, "true, or a world of at least two ranks"))
    return ranks


def most_of(ranks: Sequence[int], setting: str, value: int | None) -> int:
    """*value* of *setting*, a number of *ranks*; all of them for None. Raises UsageError if there are not so many."""
    if value is not None and value > len(ranks):
        raise UsageError(Problem(setting, f"{value}", f"at most {len(ranks)}, as many as there are ranks that train"))
    return len(ranks) if value is None else value


def check_push(push: str, compression: object) -> None:
    """Compressors are made for gradients; what error feedback keeps of weights would have no meaning."""
    if push == "weights" and compression != "none":
        raise UsageError(Problem("compression", f"{compression!r} with push: weights", "none, or push: gradients"))


def mean(contributions: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The mean of each gradient over *contributions*, summed in the order given; the first one is overwritten."""
    total = list(contributions[0])
    for gradients in contributions[1:]:
        for into, gradient in zip(total, gradients, strict=True):
            into.add_(gradient)
    return [tensor.div_(len(contributions)) for tensor in total]


def blended(own: Sequence[Tensor], theirs: Sequence[Tensor], share: float) -> list[Tensor]:
    """(1 - share) own + share theirs, tensor by tensor."""
    if share == 1:
        return list(theirs)
    return [mine.lerp(other, share) for mine, other in zip(own, theirs, strict=True)]


def endless(replica: Replica) -> Iterator[Batch]:
    """The replica's batches, from the beginning again when they are used up."""
    yield from replica.batches()
    while True:
        yield from replica.batches(0)


async def unless_told(node: Transport, tag: str, work: Coroutine[Any, Any, T]) -> T | Message:
    """What *work* returns, or the message under *tag* from the server, if that is here first: *work* is cancelled then.

    On a real device cancelled work may still run, and read the weights: load them as a piece of work behind it.
    """
    async with asyncio.TaskGroup() as group:
        doing, news = group.create_task(work), group.create_task(node.recv(SERVER, tag))
        await asyncio.wait((doing, news), return_when=asyncio.FIRST_COMPLETED)
        told = news.done()
        (doing if told else news).cancel()
    return news.result() if told else doing.result()
