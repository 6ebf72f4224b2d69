"""Connections of peers that come back, or come late: when a node begins to deal with one in place of the one before.

A peer that is back is another incarnation. Its connection waits, unread, until the loss of the one before has been told
here: else what the new one sends would be taken for the old one's next. Nothing of the old connection is heard then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simcluster.errors import ProtocolError
from simcluster_backends.common.inbox import Inbox
from simcluster_backends.sockets.wire.frame import Frame, Outgoing

if TYPE_CHECKING:
    from simcluster_backends.sockets.net.connection import Connection

BACK = "it has come back, and what it was before is gone"


class Returning:
    """Those of the node with this *inbox*. *past*: connections of incarnations that are over, for what moved on them.

    *deal_with(rank, connection)* makes a connection the one that is dealt with; *expect_end(rank, reason, incarnation)*
    says that an incarnation is gone; *later(callback, rank)* calls soon.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        deal_with: Callable[[int, Connection], None],
        expect_end: Callable[[int, str, int], None],
        later: Callable[[Callable[[int], None], int], None],
    ) -> None:
        self._inbox = inbox
        self._deal_with, self._expect_end, self._later = deal_with, expect_end, later
        self._waiting: dict[int, tuple[Connection, list[Frame]]] = {}
        self._drained: list[Connection] = []
        self.past: list[Connection] = []

    def links(self) -> list[Connection]:
        """Those that are open beside the ones that are dealt with."""
        return [*(connection for connection, _ in self._waiting.values()), *self._drained]

    def welcome(self, rank: int, connection: Connection, old: Connection | None) -> None:
        """*rank* is there (again), behind *connection*; *old* is that of the incarnation before, if there was one."""
        if rank in self._waiting:  # it has come back twice since anybody here looked
            self.retire(self._waiting.pop(rank)[0])
        come: list[Frame] = []
        self._waiting[rank] = connection, come
        connection.on_frame = come.append
        connection.on_lost = lambda reason: self._forget(rank, connection)
        connection.pause_reading()
        if self._inbox.has_told(rank):
            self._later(self._accept, rank)
        elif old is not None:
            self._expect_end(rank, BACK, old.peer.incarnation)

    def told(self, rank: int) -> None:
        """The loss of *rank* is being raised."""
        if rank in self._waiting:
            # Not at once: whoever is being told of its end is told first.
            self._later(self._accept, rank)

    def link_of(self, rank: int, incarnation: int, present: Connection | None) -> Connection | None:
        """The connection to this *incarnation* of *rank*, if there is one; *present* is the one that is dealt with."""
        waiting = [self._waiting[rank][0]] if rank in self._waiting else []
        known = [link for link in (present, *waiting) if link is not None]
        return next((link for link in known if link.peer.incarnation == incarnation), None)

    def drain(self, connection: Connection, goodbye: Outgoing) -> None:
        """Say *goodbye* on *connection* and drop what comes there: this node's algorithm has ended."""
        connection.on_frame, connection.on_lost = (lambda frame: None), (lambda reason: None)
        self._drained.append(connection)
        if connection.is_open:
            connection.put(goodbye)
            connection.resume_reading()

    def drain_waiting(self, goodbye: Outgoing) -> None:
        """Drain the connections of peers that this node, whose algorithm has ended, will not deal with any more."""
        waiting, self._waiting = self._waiting, {}
        for connection, _ in waiting.values():
            self.drain(connection, goodbye)

    def retire(self, connection: Connection) -> None:
        """Nothing of *connection* is heard any more."""
        connection.on_frame = lambda frame: None
        connection.on_lost = lambda reason: None
        connection.abort(BACK)
        self.past.append(connection)

    # inside

    def _accept(self, rank: int) -> None:
        """Deals with the new incarnation, if the loss of the one before has been told."""
        if rank not in self._waiting or not self._inbox.has_told(rank):
            return
        connection, come = self._waiting.pop(rank)
        self._inbox.found(rank)
        self._deal_with(rank, connection)
        connection.resume_reading()
        try:
            for frame in come:
                connection.on_frame(frame)
        except ProtocolError as error:
            connection.abort(str(error))

    def _forget(self, rank: int, connection: Connection) -> None:
        """It is gone again, before anybody here has dealt with it."""
        if rank in self._waiting and self._waiting[rank][0] is connection:
            del self._waiting[rank]
            self.past.append(connection)
