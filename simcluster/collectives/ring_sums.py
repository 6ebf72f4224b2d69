"""A ring's sums, made once for all ranks where one process holds every rank's vector: in the simulator.

A message then only says which parts its sum has so far, in which order. A sum is made when the first rank needs it:
from the vectors where they are, with the same additions in the same order as step by step.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from simcluster.collectives.exchange import run_rounds, with_values
from simcluster.payload import Later, Message, Payload
from simcluster.process.late_copies import late_copy
from simcluster.rounds import Rounds
from simcluster.transport import Transport


class Sum:
    """The sum of *parts*, each of which is added to the sum of those before it; *total* once it is made.

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
        self._own = vector.detach().tensor_split(size)
        self._complete: dict[int, Sum] = {}  # by chunk
        self._outgoing = Sum(self._own[rank])
        self._mine = [(self._outgoing, 0)]  # sums with a part of this rank, and its number

    def sends(self, number: int) -> Payload:
        chunk = self._own[(self._rank - number) % self._size]
        return SoFar(like=_like(len(chunk), chunk.dtype), sum=self._outgoing)

    def receives(self, number: int, message: Message) -> None:
        chunk = (self._rank - number - 1) % self._size
        payload, own = message.payload, self._own[chunk]
        if isinstance(payload, SoFar):
            found, form = payload.sum, payload.like.tensors[0]
        else:
            found, form = Sum(message.tensor), message.tensor
        if number < self._size - 1:
            found = self._added(found, form, chunk)
        elif form.dtype is not own.dtype:
            found = Sum(found.value().to(own.dtype))
        if number >= self._size - 2:
            self._complete[chunk] = found
        self._outgoing = found

    def result(self, divisor: int) -> Tensor:
        """Return the sums of all chunks as one vector, divided by *divisor*; a late copy of what all ranks return."""
        first, *others = sums = [self._complete[chunk] for chunk in range(self._size)]
        home = first.home
        if home is None or any(each.home is not home for each in others):
            home = torch.empty(sum(map(len, self._own)), dtype=self._own[0].dtype)
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

    def _added(self, found: Sum, form: Tensor, chunk: int) -> Sum:
        own = self._own[chunk]
        if form.shape != own.shape:
            lengths = f"{len(own)} numbers, rank {(self._rank - 1) % self._size}'s {len(form)}"
            where = f"{self._tag!r}: chunk {chunk} of rank {self._rank}"
            raise ValueError(f"{where} has {lengths}; expected vectors of one length")
        if form.dtype is not own.dtype or found.total is not None:
            return Sum(torch.add(own, found.value(), out=torch.empty_like(own)))
        self._mine.append((found, len(found.parts)))
        found.parts.append(own)
        return found


async def all_reduce_at_once(node: Transport, vector: Tensor, tag: str, rounds: Rounds, divisor: int) -> Tensor:
    """Return what `ring_all_reduce` does, by *rounds*."""
    ring = RingOfSums(node.rank, node.size, vector, tag)
    try:
        await run_rounds(node, with_values(rounds, ring.sends, ring.receives))
        return ring.result(divisor)
    finally:
        ring.leave()


@lru_cache(maxsize=1024)
def _like(length: int, dtype: torch.dtype) -> Payload:
    return Payload((torch.empty(length, dtype=dtype, device="meta"),))
