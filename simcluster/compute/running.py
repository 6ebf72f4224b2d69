"""Running statistics, such as a batch norm's means, travel with what an algorithm sends; no algorithm names them.

A forward pass in training changes them, so without an exchange each rank has those of its own batches, and a server
that only takes gradients has none. All of them are blends: a variance never becomes negative.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from simcluster.compute.node import host_side
from simcluster.forwarding import Forwarding
from simcluster.payload import Message, Payload, Sendable, as_payload
from simcluster.transport import ANY, Any_, Cost, Transport

T = TypeVar("T")

Travel: TypeAlias = Literal["peers", "server", "sums", "none"]
"""How running statistics travel: with each message to a peer, which takes the mean of its own and those that came;
with each message to or from rank 0, whose answer replaces a worker's; in all-reduces alone; or not at all.

In all-reduces they travel in the first two ways as well.
"""

SERVER = 0


class StatisticsHolder(Protocol):
    """A replica with running statistics."""

    def statistics(self) -> list[Tensor]:
        """Return copies of them."""

    def load_statistics(self, values: Sequence[Tensor]) -> None:
        """Overwrite them."""


class StatisticsExchange(Forwarding):
    """*node*, for an algorithm that trains *replica*, which has running statistics; they *travel* with its messages.

    What came is blended in before the next piece of work, in rank order, so the result depends on what the algorithm
    has received, and not on when. *samples*: those of each rank's batch, the weights in means at a server and in
    all-reduces. *own* are those after the last piece of work; they never change in place.
    """

    def __init__(self, node: Transport, replica: StatisticsHolder, travel: Travel, samples: Sequence[int]) -> None:
        super().__init__(node)
        self.statistics_exchange, self.plain, self.host_side = self, node, host_side(node)
        self._replica, self._travel, self._samples = replica, travel, samples
        self.own = replica.statistics()
        self._computes = not self.own[0].is_meta
        self._working = 0
        self._has_trained = False  # since what came was last blended in
        self._came: dict[int, Sequence[Tensor]] = {}
        self._mean: list[Tensor] | None = None
        self._left = self.own  # those that left last
        self._base = self.own  # a server's after the last blend
        self._blends = 0
        self._sent: dict[int, int] = {}  # the blends before the last message to each rank

    # one message

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

    # a sum over all ranks

    def leave(self) -> list[Tensor]:
        """Return what this rank adds to a sum over ranks: its statistics times their weight, and the weight.

        That is its samples, or 0 if it has not trained since it last took part.
        """
        weight = self._samples[self.rank] if self._has_trained else 0
        self._has_trained = False
        return [*(each * weight for each in self.own), self.own[0].new_full((1,), weight)]

    def arrive(self, total: Sequence[Tensor]) -> None:
        """Take the sum over ranks of what `leave` returned."""
        *sums, weight = total
        if self._computes and weight:
            self._mean = [each / weight for each in sums]

    def split(self, tensors: Sequence[Tensor], more: int = 0) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Return (what the algorithm sent, what travelled with it: as many tensors as *own* has, and *more*)."""
        count = len(self.own) + more
        return tensors[:-count], tensors[-count:]

    # work

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
        """Take the replica's statistics as they are now, after work that was not done here."""
        self.own, self._has_trained = self._replica.statistics(), True

    def settle(self) -> None:
        """Blend in what came, before the replica is looked at; a piece of work in progress does it later."""
        if self._computes and not self._working:
            self.own = self._load(self._blend())

    def _load(self, blend: Callable[[list[Tensor]], list[Tensor]] | None) -> list[Tensor]:
        """Return the replica's statistics after *blend*."""
        now = self._replica.statistics()
        if blend is not None:
            self._replica.load_statistics(now := blend(now))
        return now

    def _blend(self) -> Callable[[list[Tensor]], list[Tensor]] | None:
        """Return what makes this rank's statistics from those before and all that came, which is then used up."""
        mean, came, left = self._mean, dict(sorted(self._came.items())), self._left
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
        """Return what blends in the workers' statistics that *came*, and the server's own if it has trained since.

        All that are fresh make a mean. The more blends since a worker was last sent some, the less its own count.
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
    """Return the mean of those that *left* and that *came*, moved as far as training has moved *now* since they left.

    So a rank's own training counts in full, though that of the others' same step comes a message later. The result
    stays between the least and the largest of all.
    """
    parts = [left, *came]
    found = weighted_mean(parts, [1.0] * len(parts))
    for place, (into, mine, before) in enumerate(zip(found, now, left, strict=True)):
        each = torch.stack([mine, *(part[place] for part in parts)])
        into.add_(mine - before).clamp_(each.amin(0), each.amax(0))
    return found


def weighted_mean(parts: Sequence[Sequence[Tensor]], weights: Sequence[float]) -> list[Tensor]:
    """Return the mean of each tensor over *parts*, summed in their order."""
    total = [tensor * weights[0] for tensor in parts[0]]
    for tensors, weight in zip(parts[1:], weights[1:], strict=True):
        for into, tensor in zip(total, tensors, strict=True):
            into.add_(tensor, alpha=weight)
    return [tensor.div_(sum(weights)) for tensor in total]


def exchange_of(node: Transport) -> StatisticsExchange | None:
    """Return what makes running statistics travel with *node*'s messages, if anything does."""
    found: StatisticsExchange | None = getattr(node, "statistics_exchange", None)
    return found


def unaccompanied(node: Transport) -> Transport:
    """Return *node* without the running statistics that travel with its messages, for a look that changes nothing."""
    exchange = exchange_of(node)
    return node if exchange is None else exchange.plain
