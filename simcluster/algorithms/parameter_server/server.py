"""Helpers shared by the parameter servers: pushes, training ranks, means of gradients, cancelled work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from torch import Tensor

from simcluster.errors import Problem, UsageError
from simcluster.payload import Message
from simcluster.transport import Transport
from simcluster.workloads import Batch, BatchGroup, Replica

T = TypeVar("T")

SERVER = 0


class Push(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A *message* to the server on its way into the weights, and its *group* of batches in the ledger."""

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
        raise UsageError(Problem("server_trains", found, "true, or a world of at least two ranks"))
    return ranks


def most_of(ranks: Sequence[int], setting: str, value: int | None) -> int:
    """Return *value* of *setting*, a number of *ranks*; all for None. Raise UsageError if there are fewer."""
    if value is not None and value > len(ranks):
        raise UsageError(Problem(setting, f"{value}", f"at most {len(ranks)}, the number of ranks that train"))
    return len(ranks) if value is None else value


def check_push(push: str, compression: object) -> None:
    """Raise UsageError if weights are to be compressed: error feedback is meaningless for them."""
    if push == "weights" and compression != "none":
        raise UsageError(Problem("compression", f"{compression!r} with push: weights", "none, or push: gradients"))


def mean(contributions: Sequence[Sequence[Tensor]], samples: Sequence[int] = ()) -> list[Tensor]:
    """Return the mean of each gradient over *contributions*, summed in the given order; the first is overwritten.

    *samples*: the weight of each; none for equal ones.
    """
    total = list(contributions[0])
    if total and total[0].is_meta:
        return total  # without values there is nothing to add, and torch takes 30 us for each that it does not
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
    """Return *gradients* divided by their *staleness*, if above 1 (Zhang et al. 2016, section 3)."""
    return [gradient / staleness for gradient in gradients] if staleness > 1 else list(gradients)


def blended(own: Sequence[Tensor], theirs: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return (1 - share) own + share theirs, per tensor."""
    if share == 1:
        return list(theirs)
    return [mine.lerp(other, share) for mine, other in zip(own, theirs, strict=True)]


def endless(replica: Replica) -> Iterator[Batch]:
    """Yield the replica's batches, starting again when they run out."""
    yield from replica.batches()
    while True:
        yield from replica.batches(0)


async def unless_told(node: Transport, tag: str, work: Coroutine[Any, Any, T]) -> T | Message:
    """Return the result of *work*, or the server's message under *tag* if it arrives first: then *work* is cancelled.

    On a real device cancelled work may still run and read the weights, so load new ones as a piece of work after it.
    """
    async with asyncio.TaskGroup() as group:
        doing, news = group.create_task(work), group.create_task(node.recv(SERVER, tag))
        await asyncio.wait((doing, news), return_when=asyncio.FIRST_COMPLETED)
        told = news.done()
        (doing if told else news).cancel()
    return news.result() if told else doing.result()
