"""Helpers of all parameter servers: pushes, the ranks that train, means of gradients, and work that
a message cancels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from torch import Tensor

from simcluster.errors import UsageError
from simcluster.payload import Message
from simcluster.transport import Transport
from simcluster.workloads import Batch, BatchGroup, Replica

T = TypeVar("T")

SERVER = 0


class Push(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A *message* with gradients or weights for the server, and the *group* of batches that they
    were computed from, as kept in the ledger.
    """

    message: Message
    group: BatchGroup

    @property
    def rank(self) -> int:
        return self.message.source

    @property
    def tensors(self) -> Sequence[Tensor]:
        return self.message.tensors

    def __getitem__(self, name: str) -> Any:
        return self.message[name]


def trainers(size: int, server_trains: bool) -> range:
    """Return the ranks that compute gradients. Raise UsageError if there are none."""
    ranks = range(0 if server_trains else SERVER + 1, size)
    if not ranks:
        found = "false in a world of one rank, the server: no rank trains"
        raise UsageError("server_trains", found, "true, or a world of at least two ranks")
    return ranks


def most_of(ranks: Sequence[int], setting: str, value: int | None) -> int:
    """Return *value*, or the number of *ranks* if it is None.

    Raise UsageError, naming *setting*, if *value* exceeds the number of ranks.
    """
    if value is not None and value > len(ranks):
        raise UsageError(setting, f"{value}", f"at most {len(ranks)}, the number of ranks that train")
    return len(ranks) if value is None else value


def check_push(push: str, compression: object) -> None:
    """Raise UsageError if weights would be compressed: error feedback is meaningless for weights."""
    if push == "weights" and compression != "none":
        raise UsageError("compression", f"{compression!r} with push: weights", "none, or push: gradients")


def mean(contributions: Sequence[Sequence[Tensor]], samples: Sequence[int] = ()) -> list[Tensor]:
    """Return the mean of each gradient over *contributions*, added in their order. The first
    contribution is overwritten.

    *samples*: the weight of each contribution; empty if all have the same weight.
    """
    total = list(contributions[0])
    if total and total[0].is_meta:
        return total  # meta tensors have no values, but torch takes 30 us per operator even so
    if len(set(samples)) > 1:
        total = [tensor.mul_(samples[0]) for tensor in total]
        for gradients, count in zip(contributions[1:], samples[1:], strict=True):
            for into, gradient in zip(total, gradients, strict=True):
                into.add_(gradient, alpha=count)
        return [tensor.div_(sum(samples)) for tensor in total]
    for gradients in contributions[1:]:
        for into, gradient in zip(total, gradients, strict=True):
            into.add_(gradient)
    return [tensor.div_(len(contributions)) for tensor in total]


def damped(gradients: Sequence[Tensor], staleness: int) -> list[Tensor]:
    """Return *gradients*, divided by *staleness* if that is above 1 (Zhang et al. 2016, section
    3).
    """
    return [gradient / staleness for gradient in gradients] if staleness > 1 else list(gradients)


def blended(own: Sequence[Tensor], theirs: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return (1 - share) * own + share * theirs for each tensor."""
    if share == 1:
        return list(theirs)
    return [mine.lerp(other, share) for mine, other in zip(own, theirs, strict=True)]


def endless(replica: Replica) -> Iterator[Batch]:
    """Yield the replica's batches, starting again when they run out."""
    yield from replica.batches()
    while True:
        yield from replica.batches(0)


async def unless_told(node: Transport, tag: str, work: Coroutine[Any, Any, T]) -> T | Message:
    """Return the result of *work*. If the server's message under *tag* arrives first, cancel *work*
    and return the message.

    On a real device, cancelled work may still run and read the weights, so load new weights by a
    `node.compute` after it.
    """
    async with asyncio.TaskGroup() as group:
        doing, news = group.create_task(work), group.create_task(node.recv(SERVER, tag))
        await asyncio.wait((doing, news), return_when=asyncio.FIRST_COMPLETED)
        told = news.done()
        (doing if told else news).cancel()
    return news.result() if told else doing.result()
