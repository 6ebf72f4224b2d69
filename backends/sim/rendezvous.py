"""Messages that wait until their receiver asks for them, as MPI sends large ones: announcement, answer, bytes.

This file knows who offers and who waits. It must not know bandwidths, nor what is sent.

An offer reaches the receiver one latency after the message is the first of its stream, the answer comes back one
latency after a receiver waits for it. Each receiver that waits lets one message come: the earliest offered that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backends.sim.stream import Beside, Outgoing
from backends.sim.transport import SimTransport
from simcluster.transport import Any_

if TYPE_CHECKING:
    from backends.common.inbox import Waiting
    from backends.sim.rough import RoughStream
    from simcluster.payload import Message


class _Ask(NamedTuple):
    source: int | Any_
    tag: str | Any_
    receiver: Waiting

    def fits(self, message: Message) -> bool:
        source, tag = self.source, self.tag
        return (isinstance(source, Any_) or source == message.source) and (isinstance(tag, Any_) or tag == message.tag)


class Rendezvous:
    """What one node is offered, what it asks for, and what it has let come."""

    def __init__(self) -> None:
        self._offers: list[tuple[RoughStream, Outgoing]] = []
        self._asks: list[_Ask] = []
        self._coming: list[Message] = []

    def offer(self, stream: RoughStream, outgoing: Outgoing) -> None:
        """*outgoing* is the first of *stream*, and its announcement is here."""
        self._offers.append((stream, outgoing))
        self._match()

    def ask(self, source: int | Any_, tag: str | Any_, receiver: Waiting) -> None:
        """*receiver* waits for such a message."""
        self._asks.append(_Ask(source, tag, receiver))
        self._match()

    def forget(self, message: Message) -> None:
        """*message* has arrived, or will not."""
        self._offers = [offer for offer in self._offers if offer[1].message is not message]
        self._coming = [coming for coming in self._coming if coming is not message]
        self._match()

    def _match(self) -> None:
        """Lets come what someone waits for who is not served by what is coming already."""
        self._asks = [ask for ask in self._asks if not ask.receiver.done()]
        free = list(self._asks)
        for message in self._coming:
            served = next((ask for ask in free if ask.fits(message)), None)
            if served is not None:
                free.remove(served)
        for ask in free:
            found = next((offer for offer in self._offers if ask.fits(offer[1].message)), None)
            if found is not None:
                self._offers.remove(found)
                stream, outgoing = found
                self._coming.append(outgoing.message)
                stream.clock.alarm_at(stream.clock.now + stream.latency_s, stream.admit, outgoing)


class AskingNode(SimTransport):
    """A node that takes in nothing it has not asked for."""

    async def _receive(self, source: int | Any_, tag: str | Any_, beside: Beside | None = None) -> Message:
        return await super()._receive(source, tag, _Asking(self._cluster.rendezvous[self.rank], source, tag, beside))


class _Asking(NamedTuple):
    """Tells the rendezvous, and whoever else wants to know, what receiver waits."""

    rendezvous: Rendezvous
    source: int | Any_
    tag: str | Any_
    beside: Beside | None

    def wait_beside(self, receiver: Waiting) -> None:
        if self.beside is not None:
            self.beside.wait_beside(receiver)
        self.rendezvous.ask(self.source, self.tag, receiver)
