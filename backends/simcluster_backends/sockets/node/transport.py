"""A node's transport over real connections: messages become frames on the stream to their peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.payload import LentPayload, Payload
from simcluster_backends.common.real_node import NumberedSend, RealNode
from simcluster_backends.common.shortcuts import SHORTCUTS, fast_of
from simcluster_backends.sockets.node.order import RecordedSend
from simcluster_backends.sockets.wire.frame import BODY_LIMIT_BYTES, MESSAGE_LIMIT_BYTES
from simcluster_backends.sockets.wire.outgoing import data_frame

if TYPE_CHECKING:
    from simcluster.runs.event_notes import Notes
    from simcluster_backends.sockets.net.link import PeerLink
    from simcluster_backends.sockets.net.send_queue import QueuedFrame
    from simcluster_backends.sockets.node.member import SocketMember


@dataclass(eq=False)
class SocketSend(NumberedSend):
    """A send of a frame, *queued* on *link*. *notes* records that it was withdrawn before it
    began.
    """

    link: PeerLink
    notes: Notes | None = None
    queued: QueuedFrame = field(init=False)

    def withdraw(self) -> None:
        if self.link.queue.withdraw(self.queued) and self.notes is not None:
            self.notes.answers.withdrawn.append(self.number)


class SocketTransport(RealNode[SocketSend]):
    """The transport of *member*: see simcluster.transport.Transport for the contract.

    A frame's body has at most *body_limit_bytes*, a message to rank r *message_limits*[r] bytes.
    *kept* has the names of the shortcuts to use.
    """

    def __init__(
        self,
        member: SocketMember,
        seed: int,
        *,
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        message_limits: Sequence[int] = (),
        kept: Collection[str] = SHORTCUTS,
    ) -> None:
        super().__init__(member.rank, member.names, seed, member.activity)
        self._member = member
        self._loop = asyncio.get_running_loop()
        self.fast = fast_of(kept, self._exchange, self._land)
        self._body_limit_bytes = body_limit_bytes
        self._message_limits = message_limits or [MESSAGE_LIMIT_BYTES] * self.size
        # The send whose frame the program is just putting on its stream: see RecordedSend.
        self._putting: RecordedSend | None = None

    def _land(self, source: int, tag: str, place: Tensor) -> Callable[[], None] | None:
        link = self._member.links.get(source)
        if link is None or self._inbox.mailbox.has(source, tag):
            return None
        landing = link.land(tag, place)
        return None if landing is None else partial(link.take_back, landing)

    def _post(self, to: int, tag: str, payload: Payload) -> SocketSend | None:
        """Queue a send. Drop it and return None if the peer had ended before this node joined."""
        frame = data_frame(tag, payload, self._body_limit_bytes, self._message_limits[to])
        link = self._member.links.get(to)
        if link is None:
            return None
        number, left = self._activity.number(to, tag, frame.body_bytes), self._loop.create_future()
        notes = self._member.notes
        sending = SocketSend(number, frame.size_bytes, left, self._now, link, notes)
        has_left = partial(self.recorder.sent, to, frame.size_bytes)
        if notes is None:
            sending.queued = link.put(frame, left, has_left)
        else:
            self._putting = leaving = RecordedSend(number, left, notes, self._member.later, lambda: self._putting)
            try:  # the connection's callbacks for the frame do not belong to the program
                sending.queued = self._member.outside.run(link.put, frame, leaving, has_left)
            finally:
                self._putting = None
            if not left.done():
                notes.answers.waited.append(number)
        if not (left.done() or isinstance(payload, LentPayload)):
            frame.keep()  # copy what the kernel has not taken: the caller may change its tensors
        return sending

    def _lost(self, to: int, sending: SocketSend, reason: str) -> PeerLost:
        if self._member.links.get(to) is not sending.link:  # it went to the previous incarnation
            return PeerLost(to, self._inbox.names[to], reason, sending.link.peer.incarnation)
        return super()._lost(to, sending, reason)
