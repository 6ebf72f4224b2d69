"""Compute, rather than simulate, the rounds of a ring that all nodes enter at once on an otherwise idle cluster.

In round k rank r sends its part (r - k) mod p to the right and waits for its left neighbour's. If no two messages share
a route, the whole schedule is

    left_k(r) = start_k(r) + bytes / rate        start_k+1(r) = max(left_k(r), left_k(r - 1) + latency)

with the same floating-point operations, in the same order, as the simulation message by message. Nothing else may
happen meanwhile: no alarm due, no message in flight, no task of any node waiting for a message. The last rounds are
simulated, so that no node leaves the ring while rounds of another are still computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simcluster.payload import Payload, sizes_of

if TYPE_CHECKING:
    from torch import Tensor

    from simcluster_backends.sim.loop.event_loop import SimLoop
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.membership import Membership
    from simcluster_backends.sim.streams import Streams


Floats: TypeAlias = NDArray[np.float64]
"""A number for each rank: most often when it begins a round, in seconds."""


class Entry(NamedTuple):
    """A rank's part in a ring: *vector* is cut into parts of *lengths* elements; *tag_of* gives a round's tag."""

    vector: Tensor
    lengths: Sequence[int]
    tag_of: Callable[[int], str]

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for ranks that have entered the same ring."""
        return self.tag_of(0), self.vector.numel(), self.vector.dtype


class Ring:
    """The nodes that have entered a ring at this instant. *members* has the current incarnation of each rank."""

    def __init__(self, loop: SimLoop, members: Members, streams: Streams, membership: Membership) -> None:
        self._loop, self._members, self._streams, self._membership = loop, members, streams, membership
        self._entered: list[tuple[int, Entry, asyncio.Future[int]]] = []

    async def enter(self, rank: int, vector: Tensor, lengths: Sequence[int], tag_of: Callable[[int], str]) -> int:
        """Wait for the computed rounds; return how many *rank* can skip, 0 if in any doubt."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._entered.append((rank, Entry(vector, lengths, tag_of), future))
        self._loop.clock.gather = self._decide
        return await future

    def _decide(self) -> None:
        """Decide at the end of this instant, when all nodes have entered."""
        entered, self._entered = self._entered, []
        waiting = [(rank, entry, future) for rank, entry, future in entered if not future.done()]
        entries = [entry for _, entry, _ in waiting]
        rounds, starts_s = 0, np.empty(0)
        # Not if a node enters a second ring at the same instant: the two would share paths.
        all_in = sorted(rank for rank, _, _ in waiting) == list(range(len(self._members)))
        if all_in and len(waiting) > 1 and self._all_silent() and len({entry.kind for entry in entries}) == 1:
            rounds, starts_s = self._look_ahead(entries[0])
            if rounds:
                self._count(entries[0], rounds, starts_s)
        for rank, _, future in waiting:
            if rounds:
                self._loop.clock.alarm_at(float(starts_s[rank]), future.set_result, rounds)
            else:
                future.set_result(0)

    def _all_silent(self) -> bool:
        """Return whether no message is in flight, unread or awaited, and no node has gone."""
        silent = all(stream.is_silent for stream in self._streams.used())
        return silent and not self._membership.has_news and all(node.inbox.mailbox.is_idle for node in self._members)

    def _wires(self) -> tuple[Floats, Floats] | None:
        """Return (rates, latencies) of the paths to the right, by rank.

        None if two share a channel, or one carries other traffic or does not bound a message.
        """
        size = len(self._members)
        streams = [self._streams.of(rank, (rank + 1) % size) for rank in range(size)]
        crossed: set[int] = set()
        rates_Bps = []
        for stream in streams:
            if not stream.is_plain or self._members[stream.sender.rank].buffer is not None:
                return None
            route = stream.way.route
            rate_Bps = route.bound_Bps  # of a message alone on its route, as FairShare.join finds it
            for channel, use in route.uses:
                if id(channel) in crossed or channel.demands:
                    return None
                crossed.add(id(channel))  # only for membership tests: ids determine no order
                if channel.capacity_Bps < rate_Bps * use:
                    rate_Bps = channel.capacity_Bps / use
            rates_Bps.append(rate_Bps)
        if inf in rates_Bps:
            return None
        return np.array(rates_Bps), np.array([stream.way.latency_s for stream in streams])

    def _look_ahead(self, entry: Entry) -> tuple[int, Floats]:
        """Return (rounds to skip, when each rank begins the next one)."""
        clock, wires = self._loop.clock, self._wires()
        lengths_B = np.array(entry.lengths, dtype=np.float64) * entry.vector.element_size()
        if wires is None or lengths_B.max() >= self._streams.limit_B:
            return 0, np.empty(0)
        rounds = 2 * (len(lengths_B) - 1)
        last_in_s = []  # when the last rank begins a round
        for starts_s in _rounds(clock.now, lengths_B, wires, rounds):
            last_in_s.append(starts_s.max())
        if len(last_in_s) <= rounds:
            return 0, np.empty(0)
        first_out_s = starts_s.min()
        left_out = max(number for number in range(rounds) if last_in_s[number] <= first_out_s)
        if clock.next_alarm_s() <= last_in_s[left_out]:
            return 0, np.empty(0)
        # Recompute up to there rather than keep every round of every rank.
        *_, starts_s = _rounds(clock.now, lengths_B, wires, left_out)
        return left_out, starts_s

    def _count(self, entry: Entry, rounds: int, starts_s: Floats) -> None:
        """Record the traffic of the skipped rounds."""
        size = len(self._members)
        now_s = self._loop.clock.now
        nothing = Payload()
        bare_B = sizes_of("", nothing)[0]
        tags_B = sum(sizes_of(entry.tag_of(number), nothing)[0] - bare_B for number in range(rounds))
        parts_B = np.array([sum(sizes_of("", Payload((entry.vector.narrow(0, 0, n),)))) for n in entry.lengths])
        tag = f"{entry.tag_of(0)} and the next {rounds - 1} rounds"
        numbers = np.arange(rounds)
        sent_B = [int(parts_B[(rank - numbers) % size].sum()) + tags_B for rank in range(size)]
        for node in self._members:
            right, left = (node.rank + 1) % size, (node.rank - 1) % size
            until_s = float(starts_s[node.rank])
            node.recorder.sent(right, sent_B[node.rank], rounds)
            self._streams.of(node.rank, right).transit.arrived_B += sent_B[node.rank]
            node.recorder.received(sent_B[left])
            node.recorder.span("send", now_s, until_s, right, tag, sent_B[node.rank])
            node.recorder.span("recv", now_s, until_s, left, tag, sent_B[left])


def _rounds(now_s: float, lengths_B: Floats, wires: tuple[Floats, Floats], rounds: int) -> Iterator[Floats]:
    """Yield when each rank begins round 0, 1, ... and when it ends the last; stop early if an inbox might fill up."""
    ranks, (rates_Bps, latencies_s) = np.arange(len(lengths_B)), wires
    starts_s = np.full(len(ranks), now_s)
    yield starts_s
    for number in range(rounds):
        left_s = starts_s + lengths_B[(ranks - number) % len(ranks)] / rates_Bps
        before_s, starts_s = starts_s, np.maximum(left_s, np.roll(left_s + latencies_s, 1))
        if np.any(np.roll(before_s, -1) > starts_s):
            return  # a rank would send the next message before its neighbour has asked for the last
        yield starts_s
