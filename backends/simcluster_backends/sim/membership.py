"""The nodes that are gone, and when each other node learns of it.

A node that returns is a new incarnation; the end of the previous one is still news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from simcluster.errors import ENDED
from simcluster.fault_plans.kinds import GIVEN_UP, Fault, Pairs
from simcluster.transport import ANY, Any_


class Departure(NamedTuple):
    """The end of a node at *time_s*, or the news of it; a good end if the reason is ENDED.

    With *cut*, the node is only out of reach because of that fault.
    """

    time_s: float
    reason: str
    cut: Fault | None = None


class Severance(NamedTuple):
    """A cut by *fault* after which the *pairs* of source and receiver have given each other up at *time_s*."""

    time_s: float
    pairs: Pairs
    reason: str
    fault: Fault


class SimMembership:
    """The departures and returns of *size* nodes; *latency_s* gives the delay of news from one rank to another.

    *departed* has the nodes that are gone now, in order of time; *has_news* says whether any node has ever gone.
    """

    def __init__(self, size: int, latency_s: Callable[[int, int], float]) -> None:
        self._size, self._latency_s = size, latency_s
        self.departed: dict[int, Departure] = {}
        self.before: dict[int, list[Departure]] = {}  # of ranks that returned, by incarnation
        self._severed: list[Severance] = []
        self._gone: list[int] = []  # ranks, in the order of their departures
        self._listeners: dict[int | Any_, set[int]] = {}  # ranks by what they may wait for
        self.has_news = False
        self._all_ended_well = True  # those that have departed

    def concerns_any(self, gated: bool) -> bool:
        """Return whether a recv(ANY) may have to raise; always if faults may close streams (*gated*).

        It raises good ends only where no peer is left. So n nodes that end well need not be news n^2 times.
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
        """Whether a node has returned, or has been given up by others while it was alive."""
        return bool(self.before or self._severed)

    def severs(self, severance: Severance) -> None:
        self._severed.append(severance)
        self.has_news = True

    def incarnation(self, rank: int) -> int:
        """Return how many times *rank* has returned."""
        return len(self.before.get(rank, ()))

    def suspects(self, since: int) -> tuple[Iterable[int], int]:
        """Return the ranks that have ended since departure *since*, or all ranks after a cut; and the next number."""
        return (range(self._size) if self._severed else self._gone[since:]), len(self._gone)

    def listens(self, rank: int, source: int | Any_) -> None:
        """Note that *rank* is about to wait for a message from *source*."""
        self._listeners.setdefault(source, set()).add(rank)

    def listeners(self, source: int, any_too: bool) -> set[int]:
        """Return and forget the ranks that noted *source*, or ANY if *any_too*; those that still wait note it again."""
        return self._listeners.pop(source, set()) | (self._listeners.pop(ANY, set()) if any_too else set())

    def of(self, rank: int, hearer: int, known: int) -> list[Departure]:
        """Return the news for *hearer* about the end of incarnation *known* of *rank*; each may be delayed.

        A node that hears nothing for too long closes its connection; its peer notices if that direction is open.
        """
        found, latency_s = [], self._latency_s
        for severed in self._severed if rank != hearer else ():
            if severed.pairs(rank, hearer):
                found.append(Departure(severed.time_s, severed.reason, severed.fault))
            elif severed.pairs(hearer, rank):
                found.append(Departure(severed.time_s + latency_s(rank, hearer), GIVEN_UP, severed.fault))
        before = self.before.get(rank, ())
        departure = before[known] if known < len(before) else self.departed.get(rank)
        if departure is not None:
            # The end of a process travels like its messages.
            found.append(Departure(departure.time_s + latency_s(rank, hearer), departure.reason))
        return found

    def cut_off(self, a: int, b: int) -> bool:
        """Return whether *a* and *b* have given each other up."""
        return any(severance.pairs(a, b) or severance.pairs(b, a) for severance in self._severed)
