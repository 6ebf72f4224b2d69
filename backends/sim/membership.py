"""Who is gone, and when each of the others hears of it.

This file knows ends of nodes, cuts between them and latencies. It must not know messages, nor what anybody does about
the news. A node that comes back is another incarnation: the end of the one before is still news.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simcluster.fault_plans.kinds import ABSENT, GIVEN_UP, Fault, Pairs

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.transport import SimTransport


class Departure(NamedTuple):
    """A node's end, good if its reason is ENDED, which peers hear of one latency later."""

    time_s: float
    reason: str


class Severance(NamedTuple):
    """Since *time_s* those have given each other up whom *fault* has cut off: *pairs* of source and receiver."""

    time_s: float
    pairs: Pairs
    reason: str
    fault: Fault


class Item(NamedTuple):
    """That a peer is gone, known at *time_s*: dead or done, or out of reach for *cut*."""

    time_s: float
    reason: str
    cut: Fault | None = None


class News:
    """*departed* has those who are gone now, in order of time. *is_any* is whether there is any news at all."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.departed: dict[int, Departure] = {}
        self._before: dict[int, list[Departure]] = {}  # of those who came back, by incarnation
        self._severed: list[Severance] = []
        self.is_any = False

    def departs(self, rank: int, departure: Departure) -> None:
        self.departed[rank] = departure
        self.is_any = True

    def returns(self, rank: int) -> None:
        """*rank*, which had departed, has another incarnation."""
        self._before.setdefault(rank, []).append(self.departed.pop(rank))

    def severs(self, severance: Severance) -> None:
        self._severed.append(severance)
        self.is_any = True

    def incarnation(self, rank: int) -> int:
        """How often *rank* has come back."""
        return len(self._before.get(rank, ()))

    def incarnations(self) -> dict[int, int]:
        """Of all who have."""
        return {rank: len(before) for rank, before in self._before.items()}

    def absent(self) -> list[int]:
        """Who has never been there until now."""
        return [rank for rank, departure in self.departed.items() if departure.reason == ABSENT]

    def last_reason(self, rank: int) -> str:
        """Why the incarnation of *rank* before the present one was not there any more."""
        return self._before[rank][-1].reason

    def suspects(self) -> list[int]:
        """Of whom there may be news, in some fixed order."""
        if self._severed:
            return list(range(len(self._cluster.nodes)))
        return list(dict.fromkeys([*self._before, *self.departed]))

    def of(self, rank: int, hearer: SimTransport) -> list[Item]:
        """What *hearer* hears of the end of the incarnation of *rank* that it knows: any of it may be held up."""
        found = [self._cut(severance, rank, hearer.rank) for severance in self._severed]
        known, before = hearer.known(rank), self._before.get(rank, ())
        departure = before[known] if known < len(before) else self.departed.get(rank)
        if departure is not None:
            # A process's end travels as its messages do.
            found.append(Item(departure.time_s + self._latency_s(rank, hearer.rank), departure.reason))
        return [item for item in found if item is not None]

    def cut_off(self, a: int, b: int) -> bool:
        """Whether *a* and *b* have given each other up."""
        return any(severance.pairs(a, b) or severance.pairs(b, a) for severance in self._severed)

    def _cut(self, severance: Severance, rank: int, hearer: int) -> Item | None:
        """Who hears nothing for too long gives up, and closes: where the way there is open, the other one is told."""
        if rank == hearer:
            return None
        if severance.pairs(rank, hearer):
            return Item(severance.time_s, severance.reason, severance.fault)
        if severance.pairs(hearer, rank):
            return Item(severance.time_s + self._latency_s(rank, hearer), GIVEN_UP, severance.fault)
        return None

    def _latency_s(self, source: int, to: int) -> float:
        return self._cluster.stream(source, to).latency_s
