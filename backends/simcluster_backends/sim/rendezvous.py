"""The rendezvous protocol, by which MPI sends large messages: announcement, answer, bytes.

The announcement reaches the receiving node one latency after the message becomes the first of its
stream. Each waiting receive admits one message, the earliest announced one that it accepts. The
answer takes another latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simcluster_backends.common.mailbox import PendingReceive

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster.transport import Any_
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.outgoing import SimSend


class Rendezvous:
    """The messages announced to one node, its waiting receives, and the admitted messages."""

    def __init__(self) -> None:
        self._offers: list[tuple[SimSend, Callable[[SimSend], object]]] = []
        self._asks: list[PendingReceive[Waiting]] = []
        self._admitted: list[Message] = []

    def offer(self, outgoing: SimSend, answer: Callable[[SimSend], object]) -> None:
        """Note that *outgoing* has been announced; call *answer* when a receiver asks for it."""
        self._offers.append((outgoing, answer))
        self._match()

    def ask(self, source: int | Any_, tag: str | Any_, receiver: Waiting) -> None:
        """Note *receiver*, which waits for a message from *source* with *tag*."""
        self._asks.append(PendingReceive(source, tag, receiver))
        self._match()

    def forget(self, message: Message) -> None:
        """Forget *message*, which has arrived or never will."""
        self._offers = [offer for offer in self._offers if offer[0].message is not message]
        self._admitted = [admitted for admitted in self._admitted if admitted is not message]
        self._match()

    def _match(self) -> None:
        """Admit a message for each receiver that no admitted message serves."""
        self._asks = [ask for ask in self._asks if not ask.receiver.done()]
        free = list(self._asks)
        for message in self._admitted:
            if served := next((ask for ask in free if ask.accepts(message)), None):
                free.remove(served)
        for ask in free:
            if found := next((offer for offer in self._offers if ask.accepts(offer[0].message)), None):
                self._offers.remove(found)
                outgoing, answer = found
                self._admitted.append(outgoing.message)
                answer(outgoing)
