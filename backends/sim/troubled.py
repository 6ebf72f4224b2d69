"""A stream that a fault plan may stop, lay anew or break for good.

This file knows how each of these treats the bytes under way. It must not know faults, nor who is concerned by one.

Stopped, nothing leaves and nothing arrives: a flow under way keeps what it has left and gives its share to others, and
what would arrive meanwhile arrives one latency after the way is open again, as TCP sends it once more. Broken, all that
is still under way is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backends.sim.rough import Roughness, RoughStream
from backends.sim.stream import Outgoing

if TYPE_CHECKING:
    from backends.sim.network.flows import Route
    from simcluster.payload import Message


@dataclass(slots=True)
class _Flying:
    """A message under way, and whether its latency is over."""

    message: Message
    landed: bool = False


class TroubledStream(RoughStream):
    """*broken* is why nothing arrives any more, None while it does."""

    __slots__ = ("_admitted", "_flying", "_held", "_stops", "broken")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._stops = 0
        self._flying: deque[_Flying] = deque()  # in the order in which they left
        self._held: list[Message] = []
        self._admitted: Outgoing | None = None  # by the receiver, while this was stopped
        self.broken: object | None = None

    # what a fault does

    def stop(self) -> None:
        """Nothing gets through until as many calls of `go_on` as of this."""
        self._stops += 1
        flow = self._current.flow if self._current is not None else None
        if self._stops == 1 and flow is not None:
            self.cluster.network.pause(flow)

    def go_on(self) -> None:
        self._stops -= 1
        if self._stops:
            return
        if self._current is not None and self._current.flow is not None:
            self.cluster.network.resume(self._current.flow, self.route)
        held, self._held = self._held, []
        for message in held:
            self.clock.alarm_at(self.clock._now + self.latency_s, self._land, message)
        if self._on_silence and not self.under_way_B:
            self.clock.alarm_at(self.clock._now + self.latency_s, self._tell_silence)
        if self._admitted is not None:
            admitted, self._admitted = self._admitted, None
            self.admit(admitted)
        self.pump()

    def lay_anew(self, route: Route, latency_s: float, rough: Roughness) -> None:
        """The way is another one from now on, for the bytes of a message under way as well."""
        self.route, self.latency_s = route, latency_s
        self._rough = rough._replace(rendezvous=self._rough.rendezvous)
        flow = self._current.flow if self._current is not None else None
        if flow is None:
            return
        if flow.paused:
            flow.lay(route)
        else:
            self.cluster.network.pause(flow)
            self.cluster.network.resume(flow, route)

    def break_for(self, cause: object) -> None:
        """Both ends have given each other up because of *cause*."""
        self.broken = self.broken or cause
        here = [*self._held, *(flying.message for flying in self._flying if flying.landed)]
        self._held.clear()
        for message in here:
            self._land(message)

    # what is different then

    def pump(self) -> None:
        if not self._stops and not self.sender.hung:
            super().pump()

    def admit(self, outgoing: Outgoing) -> None:
        if self._stops:
            self._admitted = outgoing
        else:
            super().admit(outgoing)

    def withdraw(self, outgoing: Outgoing) -> None:
        if self._admitted is outgoing:
            self._admitted = None
        super().withdraw(outgoing)

    def when_silent(self, then: Callable[[], object]) -> bool:
        if self._stops and not self.under_way_B:
            self._on_silence.append(then)
            return True
        return super().when_silent(then)

    def _announced(self, outgoing: Outgoing) -> None:
        if self._stops and self._offered is outgoing:
            self._offered = None  # it is announced again
        else:
            super()._announced(outgoing)

    def _travel(self, message: Message) -> None:
        self._flying.append(_Flying(message))
        super()._travel(message)

    def _land(self, message: Message) -> None:
        if self._stops and self.broken is None:
            self._held.append(message)
            return
        index, flying = next((i, flying) for i, flying in enumerate(self._flying) if flying.message is message)
        if self.broken is not None:
            del self._flying[index]
            self.drop(message, self.broken)
            return
        # What was held may come behind what left later: as TCP does, this waits for it.
        flying.landed = True
        while self._flying and self._flying[0].landed:
            super()._land(self._flying.popleft().message)

    def _tell_silence(self, _: object) -> None:
        waiting, self._on_silence = self._on_silence, []
        for then in waiting:
            then()  # asks again whether it is silent
