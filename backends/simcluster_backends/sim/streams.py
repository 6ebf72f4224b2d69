"""The streams between the nodes of a cluster, created on first use, and the balance of their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from simcluster.rounds import NO_RANK
from simcluster_backends.sim.stream import Stream
from simcluster_backends.sim.transit import Gate, StreamEnd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simcluster.fault_plans.kinds import Fault
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.membership import SimMembership
    from simcluster_backends.sim.network.flows import Network
    from simcluster_backends.sim.network.routes import ChannelRoutes


class Ends(Protocol):
    """The current incarnation of each rank."""

    def __getitem__(self, rank: int, /) -> StreamEnd: ...

    def __iter__(self) -> Iterator[StreamEnd]: ...


class Streams:
    """All streams between the nodes of a cluster.

    *ends* has the current incarnation of each rank. *gated* says whether faults may close streams.
    *on_stream* is called with each new stream, and *on_drop* with the fault and the size of each
    dropped message.
    """

    def __init__(
        self, clock: Clock, network: Network, routes: ChannelRoutes, membership: SimMembership, ends: Ends, limit_B: int
    ) -> None:
        self.gated = False
        self.on_stream: Callable[[Stream], object] = lambda stream: None
        self.on_drop: Callable[[Fault | None, int], None] = lambda fault, size_bytes: None
        self.limit_B = limit_B
        self._clock = clock
        self._network = network
        self._routes = routes
        self._membership = membership
        self._ends = ends
        self._streams: dict[tuple[int, int], Stream] = {}
        self._sources: dict[int, set[int]] = {}  # receiver -> senders so far
        self._former: dict[int, list[StreamEnd]] = {}  # rank -> earlier incarnations
        self._retired: list[Stream] = []  # streams from and to earlier incarnations
        # The arrays (peers, bytes), by rank, of each call of `note_computed`.
        self._computed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        # Streams from new incarnations to peers that still know an earlier one.
        self._unaccepted: dict[tuple[int, int], Stream] = {}

    def of(self, source: int, to: int) -> Stream:
        """Return the stream between the current incarnations of two ranks."""
        key = (source, to)
        stream = self._streams.get(key)
        if stream is None:
            receiver = self._ends[to]
            stream = self._streams[key] = self._make(self._ends[source], receiver)
            news = self._membership
            if news.before and to not in news.departed and receiver.known(source) != news.incarnation(source):
                stream.stop()  # `accept` opens it, once the receiver knows this incarnation
                self._unaccepted[key] = stream
            self.on_stream(stream)
        return stream

    def if_used(self, source: int, to: int) -> Stream | None:
        """Return the stream between two ranks; None if it is unused and no fault can close it."""
        return self.of(source, to) if self.gated else self._streams.get((source, to))

    def to_incarnation(self, source: int, to: int, incarnation: int) -> Stream:
        """Return a stream to *incarnation* of *to*; if that has ended, the stream drops every message."""
        if incarnation == self._membership.incarnation(to):
            return self.of(source, to)
        stream = self._make(self._ends[source], self._former[to][incarnation])
        self._retired.append(stream)
        self.on_stream(stream)
        return stream

    def sources(self, to: int) -> set[int]:
        """Return the ranks that have ever had a stream to *to*."""
        return self._sources.get(to, set())

    def used(self) -> Iterable[Stream]:
        """Return the streams of current incarnations, in order of first use."""
        return self._streams.values()

    def retire(self, rank: int) -> None:
        """Set aside the streams of *rank*'s ended incarnation; call before the next one begins."""
        self._former.setdefault(rank, []).append(self._ends[rank])
        for key in [key for key in self._streams if rank in key]:
            self._retired.append(self._streams.pop(key))
            self._unaccepted.pop(key, None)

    def accept(self, rank: int, by: int) -> None:
        """Switch rank *by* to the current incarnation of *rank*.

        Messages in flight from earlier incarnations are dropped.
        """
        for stream in self._retired:
            if (stream.sender.rank, stream.receiver.rank) == (rank, by):
                stream.transit.break_for(stream.sender.killed_by)
        self._open(rank, by)

    def drain(self, rank: int) -> None:
        """Open the streams of new incarnations to *rank*, which has ended and drops messages."""
        for source in [source for source, to in self._unaccepted if to == rank]:
            self._open(source, rank)

    def note_computed(self, to: NDArray[np.int64], sizes_B: NDArray[np.int64]) -> None:
        """Note that *sizes_B[r]* bytes have gone from each rank r to rank *to[r]* without being simulated.

        *sizes_B[r]* is 0 if *to[r]* is NO_RANK.
        """
        self._computed.append((to, sizes_B))

    def check_balance(self) -> None:
        """Assert that all bytes recorded as sent have arrived, are in flight or were dropped."""
        known_B: dict[tuple[int, int], int] = {}
        for stream in [*self._streams.values(), *self._retired]:
            way = (stream.sender.rank, stream.receiver.rank)
            left = stream.transit
            known_B[way] = known_B.get(way, 0) + left.arrived_B + left.under_way_B + left.dropped_B
        for end in self._ends:
            computed_B: dict[int, int] = {}
            for peers, sizes_B in self._computed:
                peer = int(peers[end.rank])
                if peer != NO_RANK:
                    computed_B[peer] = computed_B.get(peer, 0) + int(sizes_B[end.rank])
            for to, (_, sent_B) in end.recorder.record.sent_to.items():
                found_B = known_B.pop((end.rank, to), 0) + computed_B.pop(to, 0)
                assert sent_B == found_B, f"{end.name} sent {sent_B} B to rank {to}, and {found_B} B are accounted for"
            assert not computed_B, f"bytes that {end.name} did not send: {computed_B}"
        assert not any(known_B.values()), f"bytes that no node sent: {known_B}"

    def _make(self, sender: StreamEnd, receiver: StreamEnd) -> Stream:
        self._sources.setdefault(receiver.rank, set()).add(sender.rank)
        way = self._routes.way(sender.name, receiver.name)
        gate = Gate() if self.gated else None
        return Stream(self._clock, self._network, sender, receiver, way, self.limit_B, self.on_drop, gate)

    def _open(self, source: int, to: int) -> None:
        stream = self._unaccepted.pop((source, to), None)
        if stream is not None:
            stream.go_on()
