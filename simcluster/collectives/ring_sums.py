"""A ring's sums, made once for all ranks where one process holds every rank's vector: in the simulator.

A message then only says which parts its sum has so far, in which order. A sum is made when the first rank needs it:
from the vectors where they are, with the same additions in the same order as step by step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simcluster.collectives.exchange import exchange
from simcluster.collectives.flat import lengths_of
from simcluster.payload import Later, Message, Payload
from simcluster.process.late_copies import late_copy
from simcluster.rounds import Rounds, hollow
from simcluster.transport import Transport


class Sum:
    """The sum of *parts*, each added to the sum of those before it; *total* once it is made.

    The total is a piece of *home*. *quotient*: what home was divided by, and the result.
    """

    __slots__ = ("home", "parts", "quotient", "total")

    def __init__(self, part: Tensor) -> None:
        self.parts = [part]
        self.total: Tensor | None = None
        self.home: Tensor | None = None
        self.quotient: tuple[int, Tensor] | None = None

    def make(self, place: Tensor, home: Tensor) -> None:
        """Make the total in *place*, a piece of *home* that does not change any more."""
        total, *others = self.parts
        for part in others:
            total = torch.add(part, total, out=place)
        self.total, self.home, self.parts = place if others else place.copy_(total), home, []

    def value(self) -> Tensor:
        """Return what the total is, or would be with no more parts, as a tensor that nothing else holds."""
        if self.total is not None:
            return self.total.clone()
        first, *others = self.parts
        total = first.clone()
        for part in others:
            torch.add(part, total, out=total)
        return total


class SoFar(Later, frozen=True, kw_only=True):
    """A message with *sum* as it is when it is sent: only its receiver adds to it."""

    sum: Sum

    @property  # type: ignore[misc]
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.sum.value(),)


class RingOfSums:
    """One rank's part in the all-reduce of its *vector* around the ring: what it sends and receives in each round.

    In round k rank r sends chunk r-k. After p-1 rounds it has the sum of chunk r+1; then the sums go around once.
    """

    def __init__(self, rank: int, size: int, vector: Tensor, tag: str) -> None:
        self._rank, self._size, self._tag = rank, size, tag
        self._length = length = len(vector)
        self._own = vector.detach().tensor_split(size)
        self._forms = [hollow(part, vector.dtype) for part in lengths_of(length, size)]
        self._complete: dict[int, Sum] = {}  # by chunk
        self._outgoing = Sum(self._own[rank])
        self._mine = [(self._outgoing, 0)]  # sums with a part of this rank, and its number

    def sends(self, number: int) -> Payload:
        return SoFar(like=self._forms[(self._rank - number) % self._size], sum=self._outgoing)

    def receives(self, number: int, message: Message) -> None:
        chunk = (self._rank - number - 1) % self._size
        payload = message.payload
        found = payload.sum if isinstance(payload, SoFar) else Sum(message.tensor)
        is_alike = isinstance(payload, SoFar) and payload.like is self._forms[chunk]
        if number < self._size - 1:
            found = self._added(found, chunk, is_alike)
        elif not is_alike:
            found = Sum(found.value().to(self._own[chunk].dtype))
        if number >= self._size - 2:
            self._complete[chunk] = found
        self._outgoing = found

    def result(self, divisor: int) -> Tensor:
        """Return the sums of all chunks as one vector, divided by *divisor*; a late copy of what all ranks return."""
        first, *others = sums = [self._complete[chunk] for chunk in range(self._size)]
        home = first.home
        if home is None or any(each.home is not home for each in others):
            home = torch.empty(self._length, dtype=self._own[0].dtype)
            for each, place in zip(sums, home.tensor_split(self._size), strict=True):
                if each.total is None:
                    each.make(place, home)
                else:
                    place.copy_(each.total)
        if divisor == 1:
            return late_copy(home)
        if first.home is not home:
            return home.div_(divisor)
        if first.quotient is None or first.quotient[0] != divisor:
            first.quotient = divisor, torch.div(home, divisor, out=torch.empty_like(home))
        return late_copy(first.quotient[1])

    def leave(self) -> None:
        """Let the vector be changed from now on: sums that are still to be made get a copy of this rank's part."""
        for each, number in self._mine:
            if each.total is None:
                each.parts[number] = each.parts[number].clone()

    def _added(self, found: Sum, chunk: int, is_alike: bool) -> Sum:
        own = self._own[chunk]
        if is_alike and found.total is None:
            self._mine.append((found, len(found.parts)))
            found.parts.append(own)
            return found
        arrived = found.value()
        if arrived.shape != own.shape:
            lengths = f"{len(own)} numbers, rank {(self._rank - 1) % self._size}'s {len(arrived)}"
            where = f"{self._tag!r}: chunk {chunk} of rank {self._rank}"
            raise ValueError(f"{where} has {lengths}; expected vectors of one length")
        return Sum(torch.add(own, arrived, out=torch.empty_like(own)))


async def all_reduce_at_once(node: Transport, vector: Tensor, tag: str, rounds: Rounds, divisor: int) -> Tensor:
    """Return what `ring_all_reduce` does, by *rounds*."""
    ring = RingOfSums(node.rank, node.size, vector, tag)
    try:
        for number in range(rounds.count):
            to, source = (node.rank + 1) % node.size, (node.rank - 1) % node.size
            ring.receives(number, await exchange(node, to, source, rounds.tag(number), ring.sends(number)))
        return ring.result(divisor)
    finally:
        ring.leave()
