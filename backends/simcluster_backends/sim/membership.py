"""The nodes that are gone, and the times at which other nodes learn of their departures.

A node that returns is a new incarnation. The end of its previous incarnation remains news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from simcluster.errors import ENDED
from simcluster.fault_plans.kinds import GIVEN_UP, Fault, Pairs
from simcluster.transport import ANY, Any_


class Departure(NamedTuple):
    """The departure of a node at *time_s*, or the news of a departure, which arrives at *time_s*.

    The node ended well if the reason is ENDED. With *cut*, the node is only unreachable, because of
    that fault.
    """

    time_s: float
    reason: str
    cut: Fault | None = None


class Severance(NamedTuple):
    """A network cut by *fault* that lasted until nodes lost each other, at *time_s*.

    *pairs* returns whether the cut severs the direction from one rank to another.
    """

    time_s: float
    pairs: Pairs
    reason: str
    fault: Fault


class SimMembership:
    """The departures and returns of *size* nodes.

    *latency_s* returns the delay of news from one rank to another at a given time. *departed* has
    the nodes that are gone now, in order of departure. *has_news* says whether there was a
    departure or a network cut.
    """

    def __init__(self, size: int, latency_s: Callable[[int, int, float], float]) -> None:
        self._size = size
        self._latency_s = latency_s
        self.departed: dict[int, Departure] = {}
        self.before: dict[int, list[Departure]] = {}  # departures of ranks that have returned
        self._severed: list[Severance] = []
        self._gone: list[int] = []  # ranks, in the order of their departures
        self._listeners: dict[int | Any_, set[int]] = {}  # source -> ranks that may wait for it
        self.has_news = False
        self._all_ended_well = True  # whether all nodes that have departed ended well

    def concerns_any(self, gated: bool) -> bool:
        """Return whether a recv(ANY) may have to raise; True if faults may close streams (*gated*).

        A recv(ANY) raises the loss of a node that ended well only if no peer is left. So n nodes
        that end well need not cause n^2 notices.
        """
        return gated or not self._all_ended_well or len(self.departed) >= self._size - 1

    def departs(self, rank: int, departure: Departure) -> None:
        self.departed[rank] = departure
        self._gone.append(rank)
        self.has_news = True
        self._all_ended_well = self._all_ended_well and departure.reason == ENDED

    def returns(self, rank: int) -> None:
        """Give *rank*, which had departed, a new incarnation."""
        self.before.setdefault(rank, []).append(self.departed.pop(rank))

    @property
    def is_mended(self) -> bool:
        """Whether a node has returned, or a cut has made live nodes lose each other."""
        return bool(self.before or self._severed)

    def severs(self, severance: Severance) -> None:
        self._severed.append(severance)
        self.has_news = True

    def incarnation(self, rank: int) -> int:
        """Return how many times *rank* has returned."""
        return len(self.before.get(rank, ()))

    def suspects(self, since: int) -> tuple[Iterable[int], int]:
        """Return the ranks that may have departed since departure *since*, and the next *since*.

        After a network cut, these are all ranks.
        """
        return (range(self._size) if self._severed else self._gone[since:]), len(self._gone)

    def listens(self, rank: int, source: int | Any_) -> None:
        """Note that *rank* is about to wait for a message from *source*."""
        self._listeners.setdefault(source, set()).add(rank)

    def listeners(self, source: int, any_too: bool) -> set[int]:
        """Return and forget the ranks that listen to *source*, and with *any_too* to ANY.

        Ranks that still wait must register again.
        """
        return self._listeners.pop(source, set()) | (self._listeners.pop(ANY, set()) if any_too else set())

    def of(self, rank: int, hearer: int, known: int) -> list[Departure]:
        """Return the news for *hearer* about the end of incarnation *known* of *rank*.

        Each item has the time at which *hearer* learns of it, which may be in the future. In a
        network cut, the node that hears nothing closes its connection. Its peer notices this if the
        cut leaves the direction to the peer open.
        """
        found, latency_s = [], self._latency_s
        for severed in self._severed if rank != hearer else ():
            if severed.pairs(rank, hearer):
                found.append(Departure(severed.time_s, severed.reason, severed.fault))
            elif severed.pairs(hearer, rank):
                found.append(
                    Departure(severed.time_s + latency_s(rank, hearer, severed.time_s), GIVEN_UP, severed.fault)
                )
        before = self.before.get(rank, ())
        departure = before[known] if known < len(before) else self.departed.get(rank)
        if departure is not None:
            # The end of a process travels like its messages.
            found.append(Departure(departure.time_s + latency_s(rank, hearer, departure.time_s), departure.reason))
        return found

    def cut_off(self, a: int, b: int) -> bool:
        """Return whether *a* and *b* have lost each other because of a network cut."""
        return any(severance.pairs(a, b) or severance.pairs(b, a) for severance in self._severed)
