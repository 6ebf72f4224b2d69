"""Running statistics, such as those of a batch norm, travel with an algorithm's messages.

No algorithm handles them itself. A forward pass in training changes them, so without an exchange
each rank would have the statistics of its own batches only, and a server that receives only
gradients would have none. Every exchange takes a weighted mean, so that no variance becomes
negative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from simcluster.compute.node import host_side
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Payload, Sendable, as_payload
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")

Travel = Literal["peers", "server", "sums", "none"]
"""The messages in which running statistics travel.

"peers": in all messages between peers; a receiver takes the mean of its own statistics and the
received ones. "server": in all messages to or from rank 0; the statistics from rank 0 replace those
of a worker. "sums": in all-reduces alone. "none": in no messages. With "peers" and "server", the
statistics also travel in all-reduces.
"""

SERVER = 0


class StatisticsHolder(Protocol):
    """A replica with running statistics."""

    def statistics(self) -> list[Tensor]:
        """Return copies of the running statistics."""

    def load_statistics(self, values: Sequence[Tensor]) -> None:
        """Overwrite the running statistics."""


class StatisticsExchange(Forwarding):
    """A wrapper of *node* that exchanges the running statistics of *replica* with other ranks.

    *travel* says which messages they travel in. Received statistics are blended in, in rank order,
    before the next piece of work, so the result depends only on the messages that the algorithm has
    received. *samples* has the batch size of each rank, which is its weight in means at a server
    and in all-reduces. *own* has the statistics after the last piece of work, and is never changed
    in place.
    """

    def __init__(self, node: Transport, replica: StatisticsHolder, travel: Travel, samples: Sequence[int]) -> None:
        super().__init__(node)
        self.statistics_exchange = self
        self.plain = node
        self.host_side = host_side(node)
        self._replica = replica
        self._travel = travel
        self._samples = samples
        self.own = replica.statistics()
        self._computes = not self.own[0].is_meta
        self._working = 0
        self._has_trained = False  # since this rank last took part in a sum
        self._came: dict[int, Sequence[Tensor]] = {}
        self._mean: list[Tensor] | None = None
        self._left = self.own  # the statistics that were sent last
        self._base = self.own  # a server's statistics after the last blend
        self._blends = 0
        self._sent: dict[int, int] = {}  # rank -> the number of blends before the last message to it

    # A message between two ranks.

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        content = as_payload(content)
        if self._travel in ("peers", "server") and content.tensors:
            content = type(content)((*content.tensors, *self.own), content.values)
            self._sent[to], self._left = self._blends, self.own
        await self._node.send(to, tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        message = await self._node.recv(source, tag)
        if self._travel in ("peers", "server") and message.tensors:
            tensors, self._came[message.source] = self.split(message.tensors)
            message.payload = Payload(tuple(tensors), message.payload.values)
        return message

    # A sum over all ranks.

    def leave(self) -> list[Tensor]:
        """Return this rank's contribution to a sum over all ranks: its weighted statistics, then
        the weight.

        The weight is this rank's batch size, or 0 if it has not trained since its last
        contribution.
        """
        weight = self._samples[self.rank] if self._has_trained else 0
        self._has_trained = False
        return [*(each * weight for each in self.own), self.own[0].new_full((1,), weight)]

    def arrive(self, total: Sequence[Tensor]) -> None:
        """Take *total*, the sum of all ranks' contributions: see `leave`."""
        *sums, weight = total
        if self._computes and weight:
            self._mean = [each / weight for each in sums]

    def split(self, tensors: Sequence[Tensor], more: int = 0) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Split off the statistics and *more* tensors after them from the end of *tensors*.

        Return (the algorithm's tensors, the tensors split off).
        """
        count = len(self.own) + more
        return tensors[:-count], tensors[-count:]

    # Work of the device.

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        if not self._computes or not callable(work) or inspect.iscoroutinefunction(work):
            return await self._node.compute(work, *args, cost=cost, **kwargs)
        blend = self._blend()

        @wraps(work)
        def whole(*args: Any, **kwargs: Any) -> tuple[T, list[Tensor], bool]:
            before = self._load(blend)
            result = work(*args, **kwargs)
            after = self._replica.statistics()
            return result, after, not all(map(torch.equal, before, after))

        self._working += 1
        try:
            result, self.own, has_trained = await self._node.compute(whole, *args, cost=cost, **kwargs)
        finally:
            self._working -= 1
        self._has_trained = self._has_trained or has_trained
        return result

    def record(self, *, step: int, **metrics: float) -> None:
        self.settle()
        self._node.record(step=step, **metrics)

    def look(self) -> None:
        """Read the statistics from the replica, after training that did not go through
        `compute`.
        """
        self.own, self._has_trained = self._replica.statistics(), True

    def settle(self) -> None:
        """Blend in the received statistics before the replica is read.

        Do nothing while a piece of work is in progress: the next piece or call blends them in.
        """
        if self._computes and not self._working:
            self.own = self._load(self._blend())

    def _load(self, blend: Callable[[list[Tensor]], list[Tensor]] | None) -> list[Tensor]:
        """Apply *blend*, if it is not None, to the replica's statistics, and return the
        statistics.
        """
        now = self._replica.statistics()
        if blend is not None:
            self._replica.load_statistics(now := blend(now))
        return now

    def _blend(self) -> Callable[[list[Tensor]], list[Tensor]] | None:
        """Return a function that blends the received statistics into this rank's; None if there are
        none.

        Forget the received statistics.
        """
        mean = self._mean
        came = dict(sorted(self._came.items()))
        left = self._left
        self._mean, self._came = None, {}
        if not came:
            return None if mean is None else lambda _: mean
        self._blends += 1
        if self._travel == "peers":
            return lambda now: _with_peers(mean or now, left, [came[rank] for rank in came])
        if self.rank == SERVER:
            return self._blend_of_server(came)
        answer = list(came[SERVER])
        return lambda _: answer

    def _blend_of_server(self, came: dict[int, Sequence[Tensor]]) -> Callable[[list[Tensor]], list[Tensor]]:
        """Return a function that blends the workers' statistics *came* into the server's.

        Fresh statistics are averaged, with the server's own if it has trained. The statistics of a
        worker count less if the server has blended several times since it last sent to that worker.
        """
        fresh = sum(1 / (self._blends - self._sent.get(rank, 0)) for rank in came) / len(came)

        def blended(now: list[Tensor]) -> list[Tensor]:
            has_trained = not all(map(torch.equal, now, self._base))
            ranks = ([SERVER] if has_trained else []) + list(came)
            found = weighted_mean([came.get(rank, now) for rank in ranks], [self._samples[rank] for rank in ranks])
            if (share := fresh * len(ranks)) < 1:
                found = [mine.lerp(other, share) for mine, other in zip(self._base, found, strict=True)]
            self._base = found
            return found

        return blended


def _with_peers(now: list[Tensor], left: Sequence[Tensor], came: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the mean of *left* and all of *came*, plus the difference *now* - *left*.

    *left* has the statistics that this rank last sent, so the difference is its own training since
    then. That counts in full, although the other ranks' training in the same step arrives only with
    their next messages. Each result is limited to the range of the values that it comes from.
    """
    parts = [left, *came]
    found = weighted_mean(parts, [1.0] * len(parts))
    for place, (into, mine, before) in enumerate(zip(found, now, left, strict=True)):
        each = torch.stack([mine, *(part[place] for part in parts)])
        into.add_(mine - before).clamp_(each.amin(0), each.amax(0))
    return found


def weighted_mean(parts: Sequence[Sequence[Tensor]], weights: Sequence[float]) -> list[Tensor]:
    """Return the weighted mean of *parts*, tensor by tensor, added in the order of *parts*."""
    return [tensor.div_(sum(weights)) for tensor in weighted_sum(parts, weights)]


def weighted_sum(parts: Sequence[Sequence[Tensor]], weights: Sequence[float]) -> list[Tensor]:
    """Return the weighted sum of *parts*, tensor by tensor, added in the order of *parts*."""
    total = [tensor * weights[0] for tensor in parts[0]]
    for tensors, weight in zip(parts[1:], weights[1:], strict=True):
        for into, tensor in zip(total, tensors, strict=True):
            into.add_(tensor, alpha=weight)
    return total


def exchange_of(node: Transport) -> StatisticsExchange | None:
    """Return the exchange that sends running statistics along with *node*'s messages, if there is
    one.
    """
    found: StatisticsExchange | None = getattr(node, "statistics_exchange", None)
    return found


def unaccompanied(node: Transport) -> Transport:
    """Return *node* without the exchange of running statistics.

    Measurements send through this node, since they must change nothing.
    """
    exchange = exchange_of(node)
    return node if exchange is None else exchange.plain
