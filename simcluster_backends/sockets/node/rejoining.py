"""Connections of peers that rejoin or join late: when each replaces the connection of the previous incarnation.

A peer that rejoins is a new incarnation. Its connection waits, unread, until the loss of the previous one has been
raised here: otherwise its messages would be taken for the old one's. After that the old connection is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcluster.errors import ProtocolError
from simcluster_backends.sockets.wire.frame import Frame, Outgoing

if TYPE_CHECKING:
    from simcluster_backends.sockets.net.connection import Connection
    from simcluster_backends.sockets.node.member import Member

BACK = "it has rejoined, and its previous incarnation is gone"


class Returning:
    """The rejoining peers of *member*. *past* keeps replaced connections, for their byte counts."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._waiting: dict[int, tuple[Connection, list[Frame]]] = {}
        self._drained: list[Connection] = []
        self.past: list[Connection] = []

    def links(self) -> list[Connection]:
        """Open connections besides those in use."""
        return [*(connection for connection, _ in self._waiting.values()), *self._drained]

    def welcome(self, rank: int, connection: Connection, old: Connection | None) -> None:
        """Hold *connection* of *rank*, which has joined or rejoined; *old* is that of its previous incarnation."""
        if rank in self._waiting:  # it has rejoined twice since its loss was raised
            self.retire(self._waiting.pop(rank)[0])
        come: list[Frame] = []
        self._waiting[rank] = connection, come
        connection.on_frame = come.append
        connection.on_lost = lambda reason: self._forget(rank, connection)
        connection.pause_reading()
        if self._member.inbox.has_told(rank):
            self._member.later(self._accept, rank)
        elif old is not None:
            self._member.expect_end(rank, BACK, old.peer.incarnation)

    def told(self, rank: int) -> None:
        """Accept a waiting connection of *rank*: its loss is being raised."""
        if rank in self._waiting:
            # Not at once: waits for the old incarnation are failed first.
            self._member.later(self._accept, rank)

    def link_of(self, rank: int, incarnation: int, present: Connection | None) -> Connection | None:
        """Return the connection to this *incarnation* of *rank*, if any; *present* is the one in use."""
        waiting = [self._waiting[rank][0]] if rank in self._waiting else []
        known = [link for link in (present, *waiting) if link is not None]
        return next((link for link in known if link.peer.incarnation == incarnation), None)

    def drain(self, connection: Connection, goodbye: Outgoing) -> None:
        """Say *goodbye* on *connection* and drop what arrives: this node's algorithm has ended."""
        connection.on_frame, connection.on_lost = (lambda frame: None), (lambda reason: None)
        self._drained.append(connection)
        if connection.is_open:
            connection.put(goodbye)
            connection.resume_reading()

    def drain_waiting(self, goodbye: Outgoing) -> None:
        """Drain the connections still waiting when this node's algorithm has ended."""
        waiting, self._waiting = self._waiting, {}
        for connection, _ in waiting.values():
            self.drain(connection, goodbye)

    def retire(self, connection: Connection) -> None:
        """Close *connection* and ignore it from now on."""
        connection.on_frame = lambda frame: None
        connection.on_lost = lambda reason: None
        connection.abort(BACK)
        self.past.append(connection)

    # inside

    def _accept(self, rank: int) -> None:
        """Use the connection of the new incarnation, if the loss of the previous one has been raised."""
        if rank not in self._waiting or not self._member.inbox.has_told(rank):
            return
        connection, come = self._waiting.pop(rank)
        self._member.inbox.found(rank)
        self._member.deal_with(rank, connection)
        connection.resume_reading()
        try:
            for frame in come:
                connection.on_frame(frame)
        except ProtocolError as error:
            connection.abort(str(error))

    def _forget(self, rank: int, connection: Connection) -> None:
        """Forget *connection*, lost before it was accepted."""
        if rank in self._waiting and self._waiting[rank][0] is connection:
            del self._waiting[rank]
            self.past.append(connection)
