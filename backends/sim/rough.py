"""A stream on which more happens than latency and bandwidth: overheads, jitter, losses, changing links, rendezvous.

This file knows when each of them delays a message. It must not know how any of them is drawn or computed; a cluster
that has none of them has plain streams.

Where a message's time goes, in order: the sender's overhead, one message of the node after another; its turn in the
stream; its bytes, with the stalls of lost packets; latency and jitter, never before the message in front of it; the
receiver's overhead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from backends.sim.jitter import Draw
from backends.sim.network.conditions import Weather
from backends.sim.network.losses import Losses
from backends.sim.stages import Host
from backends.sim.stalling import StallingFlow
from backends.sim.stream import Outgoing, Stream

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.network.flows import Route
    from backends.sim.rendezvous import Rendezvous
    from backends.sim.transport import SimTransport
    from simcluster.payload import Message


class Roughness(NamedTuple):
    """What there is between two nodes beside the route; None and () for what there is not."""

    sender: Host | None = None
    receiver: Host | None = None
    jitters: tuple[Draw, ...] = ()
    losses: Losses | None = None
    weather: Weather | None = None
    rendezvous: Rendezvous | None = None


class RoughStream(Stream):
    """A stream whose messages meet what *rough* says."""

    __slots__ = ("_last_arrival_s", "_offered", "_on_silence", "_preparing", "_rough")

    is_plain = False

    def __init__(
        self,
        cluster: Cluster,
        sender: SimTransport,
        receiver: SimTransport,
        route: Route,
        latency_s: float,
        rough: Roughness,
    ) -> None:
        super().__init__(cluster, sender, receiver, route, latency_s)
        self._rough = rough
        self._preparing: deque[Outgoing] = deque()  # in the sender's queue of overheads
        self._offered: Outgoing | None = None  # announced, and not yet asked for
        self._last_arrival_s = 0.0
        self._on_silence: list[Callable[[], object]] = []

    def put(self, outgoing: Outgoing) -> None:
        host = self._rough.sender
        if host is None:
            super().put(outgoing)
        else:
            self._preparing.append(outgoing)
            host.handle(host.send_s, self._prepared, outgoing)

    def waiting(self) -> list[Outgoing]:
        return super().waiting() + list(self._preparing)

    @property
    def is_silent(self) -> bool:
        return super().is_silent and not self._preparing

    def pump(self) -> None:
        meeting = self._rough.rendezvous
        if meeting is None:
            super().pump()
        elif self._current is None and self._queue:
            outgoing = self._queue[0]
            if self.receiver.inbox.is_closed:
                self.admit(outgoing)  # it is dropped there
            elif outgoing is not self._offered:
                self._offered = outgoing
                self.clock.alarm_at(self.clock._now + self.latency_s, self._announced, outgoing)

    def admit(self, outgoing: Outgoing) -> None:
        """The receiver has asked for *outgoing*."""
        if self._queue and self._queue[0] is outgoing and self._current is None:
            self._current = self._queue.popleft()
            self._start(outgoing)

    def withdraw(self, outgoing: Outgoing) -> None:
        if outgoing in self._preparing:
            self._preparing.remove(outgoing)  # what it took of the node by then, it took
            return
        if outgoing is self._current:
            self._leave(outgoing)
        super().withdraw(outgoing)
        self._forget(outgoing)
        self.pump()

    def break_off(self, error: Callable[[], BaseException]) -> None:
        if self._current is not None:
            self._leave(self._current)
        for outgoing in self.waiting():
            self._forget(outgoing)
        super().break_off(error)
        self._preparing.clear()

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Calls *then* when nothing is under way any more; False if that is so already."""
        if self.under_way_B:
            self._on_silence.append(then)
        return bool(self.under_way_B)

    def drop(self, message: Message, cause: object) -> None:
        super().drop(message, cause)
        if self._rough.rendezvous is not None:
            self._rough.rendezvous.forget(message)

    # inside

    def _announced(self, outgoing: Outgoing) -> None:
        if self._offered is outgoing and self._rough.rendezvous is not None:
            self._rough.rendezvous.offer(self, outgoing)

    def _forget(self, outgoing: Outgoing) -> None:
        if self._offered is outgoing:
            self._offered = None
        if self._rough.rendezvous is not None:
            self._rough.rendezvous.forget(outgoing.message)

    def _prepared(self, outgoing: Outgoing) -> None:
        if outgoing in self._preparing:  # else it was withdrawn, or an end is gone
            self._preparing.remove(outgoing)
            super().put(outgoing)

    def _start(self, outgoing: Outgoing) -> None:
        rough, network = self._rough, self.cluster.network
        stalls = rough.losses.stalls(outgoing.body_B) if rough.losses is not None else None
        if not outgoing.body_B and not stalls:
            self._injected()
            return
        if rough.weather is not None:
            rough.weather.enter()
        if stalls:
            flow = StallingFlow(network, self.clock, self.route, outgoing.body_B, stalls, self._injected)
            outgoing.flow = flow
            network.put(flow)
        else:
            outgoing.flow = network.start(self.route, outgoing.body_B, self._injected)

    def _leave(self, outgoing: Outgoing) -> None:
        if outgoing.flow is not None and self._rough.weather is not None:
            self._rough.weather.leave()

    def _injected(self) -> None:
        if self._current is not None:
            self._leave(self._current)
        super()._injected()

    def _travel(self, message: Message) -> None:
        delay_s = self.latency_s
        for draw_s in self._rough.jitters:
            delay_s += draw_s()
        # One ordered stream: nothing overtakes.
        self._last_arrival_s = max(self._last_arrival_s, self.clock._now + delay_s)
        self.under_way_B += message.size_bytes
        self.clock.alarm_at(self._last_arrival_s, self._land, message)

    def _land(self, message: Message) -> None:
        host = self._rough.receiver
        if host is None:
            self._arrive(message)
        else:
            host.handle(host.recv_s, self._arrive, message)

    def _arrive(self, message: Message) -> None:
        super()._arrive(message)
        if self._rough.rendezvous is not None:
            self._rough.rendezvous.forget(message)
        if self._on_silence and not self.under_way_B:
            waiting, self._on_silence = self._on_silence, []
            for then in waiting:
                then()
