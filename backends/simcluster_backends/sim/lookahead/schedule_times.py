"""The times at which ranks begin rounds, if nothing else happens and messages share no channel."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isqrt, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.lookahead.paths import NO_CHANNEL, Floats, Ints, Paths, Wires
from simcluster_backends.sim.lookahead.sizes import bodies_B, messages_B

if TYPE_CHECKING:
    from simcluster.rounds import Rounds


class CourseLeg(NamedTuple):
    """Consecutive rounds, from round *first* on, in which no rank changes its path.

    *starts_s* has the times at which the ranks begin round *first*. *all_receive* says that no
    rank's source is NO_RANK.
    """

    first: int
    to: Ints
    source: Ints
    wires: Wires
    starts_s: Floats
    all_receive: bool


class RoundTimes(NamedTuple):
    """The times of round *number*, by rank.

    In the order of the fields: the rank begins the round, its message has left, its message
    arrives, and the rank ends the round.
    """

    number: int
    leg: CourseLeg
    starts_s: Floats
    left_s: Floats
    came_s: Floats
    ends_s: Floats


class Course:
    """The times of *rounds* that ranks enter at *entered_s*; *limit_B* is an inbox's capacity."""

    def __init__(self, rounds: Rounds, paths: Paths, entered_s: Floats, limit_B: int) -> None:
        self.rounds = rounds
        self.ranks = np.arange(len(entered_s))
        self.legs: list[CourseLeg] = []
        self.last_in_s: list[float] = []  # when the last rank begins each round
        self.limit_B = limit_B
        self.may_fill = False  # whether one message can fill an inbox
        self._paths = paths
        self._entered_s = entered_s
        self._kept: list[Floats] = []  # when each rank begins every _every-th round
        self._every = isqrt(rounds.count) + 1
        self._use = ChannelUse()
        self._sent_B = 0

    def end_s(self) -> Floats | None:
        """Return the time at which each rank ends the last round.

        Return None if messages would share a channel, or if an inbox might fill up."""
        starts_s = self._entered_s
        for number in range(self.rounds.count):
            self.last_in_s.append(float(starts_s.max()))
            if not number % self._every:
                self._kept.append(starts_s)
            if not self._go(number, starts_s):
                return None
            leg = self.legs[-1]
            left_s, came_s, ends_s = times_of(leg, starts_s, self._bodies_B(number))
            self._use.left_s = left_s
            if not self._has_room(number, leg, starts_s, came_s, ends_s):
                return None
            starts_s = ends_s
        return starts_s

    def starts_s(self, number: int) -> Floats:
        """Return the time at which each rank begins round *number*.

        Compute it from the last kept round: keeping the times of all rounds takes too much memory.
        """
        place = min(number // self._every, len(self._kept) - 1)
        starts_s = self._kept[place]
        for run in self.runs(place * self._every, number):
            starts_s = run.ends_s
        return starts_s

    def runs(self, first: int, stop: int) -> Iterator[RoundTimes]:
        """Yield the times of rounds *first* to *stop* - 1; the starts of *first* must be kept."""
        starts_s = self._kept[first // self._every]
        at = 0
        for number in range(first, stop):
            while at + 1 < len(self.legs) and self.legs[at + 1].first <= number:
                at += 1
            run = RoundTimes(
                number, self.legs[at], starts_s, *times_of(self.legs[at], starts_s, self._bodies_B(number))
            )
            yield run
            starts_s = run.ends_s

    def has_ties(self) -> bool:
        """Return whether two messages that a rank awaits together arrive at the same time."""
        if self.rounds.gathering < 2:
            return False
        in_s = np.full((self.rounds.gathering, len(self.ranks)), nan)
        for run in self.runs(0, self.rounds.gathering):
            receivers = run.leg.source != NO_RANK
            in_s[run.number, receivers] = run.came_s[run.leg.source[receivers]]
        in_s.sort(axis=0)
        return bool(np.any((in_s[1:] == in_s[:-1]) & (in_s[1:] > self._entered_s)))

    def _bodies_B(self, number: int) -> Ints:
        sizes_B: Ints = bodies_B(self.rounds, number, self.ranks)
        return sizes_B

    def _go(self, number: int, starts_s: Floats) -> bool:
        """Find the paths of round *number*; return False if the round cannot be computed.

        That is so if a message has no matching receiver, or if a path is, or may be, in use.
        """
        rounds = self.rounds
        ranks = self.ranks
        if self.legs and rounds.is_constant:
            return True
        to, source = rounds.to(number, ranks), rounds.source(number, ranks)
        if self.legs and np.array_equal(self.legs[-1].to, to):
            return True
        senders = np.flatnonzero(to != NO_RANK)
        sources = np.full(len(ranks), NO_RANK)
        sources[to[senders]] = senders
        is_matched = np.array_equal(source, sources) and np.array_equal(source[to[senders]], senders)
        if not is_matched or (wires := self._paths.wires(to)) is None:
            return False
        self.legs.append(CourseLeg(number, to, source, wires, starts_s, len(senders) == len(ranks)))
        return self._use.is_free(wires.channels, starts_s)

    def _has_room(self, number: int, leg: CourseLeg, starts_s: Floats, came_s: Floats, ends_s: Floats) -> bool:
        """Return whether each rank may send the next message when it begins the next round."""
        if self.rounds.is_once:
            return True  # each message is the first of its stream
        most_B = int(np.max(messages_B(self.rounds, number, self.ranks)))
        self._sent_B += most_B
        if self._sent_B < self.limit_B:
            return True  # an inbox has room for all messages so far
        if self.rounds.is_constant and np.any(starts_s[leg.to] >= ends_s):
            return False  # a receiver has not begun this round when the next message to it leaves
        if most_B < self.limit_B:
            return True
        self.may_fill = True
        return not np.any(came_s > ends_s)


class ChannelUse:
    """The last use of each channel: the rank that sent the message, and when it left.

    Messages of the same rank leave in order, so they cannot meet.
    """

    def __init__(self) -> None:
        self.left_s = np.empty(0)
        """The time at which each rank's last message so far leaves."""
        self._until_s = np.empty(0)
        self._by = np.empty(0, dtype=np.int64)
        self._channels: Ints | None = None

    def is_free(self, channels: Ints, starts_s: Floats) -> bool:
        """Return whether each rank r is alone on the channels of row r from *starts_s[r]* on.

        Record that rank r uses these channels from then on.
        """
        ranks = np.arange(len(channels))[:, np.newaxis]
        if self._channels is not None:
            self._until_s[self._channels] = self.left_s[:, np.newaxis]
            self._by[self._channels] = ranks
        if (more := int(channels.max()) + 1 - len(self._by)) > 0:
            self._until_s = np.concatenate((self._until_s, np.full(more, -inf)))
            self._by = np.concatenate((self._by, np.full(more, -1)))
        # A channel that becomes free at the same time counts as taken: only a simulation decides
        # whether the end or the beginning comes first.
        taken = (self._until_s[channels] >= starts_s[:, np.newaxis]) & (self._by[channels] != ranks)
        self._channels = channels
        return not np.any(taken & (channels != NO_CHANNEL))


def times_of(leg: CourseLeg, starts_s: Floats, sizes_B: Ints) -> tuple[Floats, Floats, Floats]:
    """Return when each rank's message has left, when it arrives, and when the rank's round ends."""
    left_s = starts_s + sizes_B / leg.wires.rates_Bps
    came_s = left_s + leg.wires.latencies_s
    there_s = came_s if leg.all_receive else np.append(came_s, -inf)  # at index NO_RANK, -1
    return left_s, came_s, np.maximum(left_s, there_s[leg.source])
