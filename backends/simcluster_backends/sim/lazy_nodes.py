"""Resting nodes, which the simulator makes only when a message is first sent to them.

An algorithm may declare that its ranks rest (`Facts.rests`): each rank except 0 does nothing until
rank 0 first sends to it, and ends when rank 0 has ended. So such a rank is only a name until that
message is sent. Then its node is made, and begins before the message arrives. The record shows its
first wait from the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from simcluster.runs.record import NodeRecord
from simcluster.transport import ANY, Any_
from simcluster.workloads.progress.ledger import Ledger
from simcluster_backends.sim.transport import SimTransport

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster.topology import Link
    from simcluster_backends.sim.members import Members
    from simcluster_backends.sim.network.routes import ChannelRoutes


class RestedTransport(SimTransport):
    """The transport of a rank that has rested: its first recv counts from the start of the run."""

    _has_waited = False

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if self._has_waited:
            return await super().recv(source, tag)
        self._has_waited = True
        message = await self._inbox.take(source, tag)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", 0.0, self._now(), message.source, message.tag, message.size_bytes)
        return message


def records_of(
    members: Members, routes: ChannelRoutes, left_s: float | None, latency_s: Callable[[int, int, float], float]
) -> list[NodeRecord]:
    """Return the record of every rank. Ranks that still rest get a copy of an idle rank's record.

    That idle rank was made when rank 0 ended, at *left_s*; if there is none, the ranks have never
    begun and get an empty record. The copies differ in rank, name and end: the news of the end of
    rank 0 reaches each rank after *latency_s(0, rank, left_s)*.
    """
    awake = {member.rank: member.recorder.record for member in members}
    like = next((record for record in reversed(awake.values()) if record.is_idle), None)
    ends_s: dict[object, float] = {}
    only = routes.topology.only_links if len(awake) < len(members) else {}
    found = []
    for rank, name in enumerate(routes.topology.workers):
        record = awake.get(rank)
        if record is None and (like is None or left_s is None):
            record = NodeRecord(rank, name, samples=[Ledger().notes()])  # the rank has never begun
        elif record is None:
            assert like is not None
            assert left_s is not None
            key = _end(name, only.get(name))
            if key not in ends_s:
                ends_s[key] = left_s + latency_s(0, rank, left_s)
            record = copy(like)
            record.rank = rank
            record.name = name
            record.finished_s = ends_s[key]
        found.append(record)
    return found


def _end(name: str, link: Link | None) -> object:
    """Return a key that is equal for nodes with equal routes.

    *link* is the only link of node *name*. If it is None, since the node has several links, the key
    is unique.
    """
    return name if link is None else (link.b if link.a == name else link.a, link.latency_s, link.bandwidth_Bps)
