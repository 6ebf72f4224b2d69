"""A path that faults may close: the messages held in front of it, and those dropped once it is broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.payload import Message
    from simcluster_backends.sim.outgoing import Outgoing


@dataclass(slots=True, eq=False)
class InFlight:
    """A message that has left, and whether its latency has passed."""

    message: Message
    landed: bool = False


class Gate:
    """The gate of one stream, initially open.

    While it is closed, nothing leaves and nothing lands. A flow keeps its remaining bytes and yields its bandwidth
    share; a message that would land is *held* and lands one latency after the gate opens, like a TCP retransmission.
    Once the gate is *broken*, that fault drops everything in flight.
    """

    __slots__ = ("_closed_by", "admitted", "broken", "held", "in_flight")

    def __init__(self) -> None:
        self._closed_by = 0
        self.in_flight: deque[InFlight] = deque()  # in the order of departure
        self.held: list[Message] = []
        self.admitted: Outgoing | None = None  # by the receiver, while this was closed
        self.broken: Fault | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed_by > 0

    def close(self) -> bool:
        """Close it; every call needs a matching `open`. Return whether it was open."""
        self._closed_by += 1
        return self._closed_by == 1

    def open(self) -> bool:
        """Undo one `close`. Return whether it is open now."""
        self._closed_by -= 1
        return self._closed_by == 0

    def leaves(self, message: Message) -> None:
        self.in_flight.append(InFlight(message))

    def land(self, message: Message) -> Iterator[Message]:
        """Yield the messages that land now, in order: later ones wait for an earlier one that was held."""
        self._find(message).landed = True
        while self.in_flight and self.in_flight[0].landed:
            yield self.in_flight.popleft().message

    def forget(self, message: Message) -> None:
        """Remove *message*, which is dropped."""
        self.in_flight.remove(self._find(message))

    def break_for(self, fault: Fault | None) -> list[Message]:
        """Break it because of *fault*. Return the messages to drop at once, after their latency."""
        self.broken = self.broken or fault
        here = [*self.held, *(flying.message for flying in self.in_flight if flying.landed)]
        self.held.clear()
        return here

    def _find(self, message: Message) -> InFlight:
        return next(flying for flying in self.in_flight if flying.message is message)
