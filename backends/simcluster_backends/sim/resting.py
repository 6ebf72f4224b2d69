"""Nodes that rest: what a cluster keeps of a rank that no message has been sent to, and what it records of one.

An algorithm says that its ranks rest (`Facts.rests`): each except rank 0 does nothing until rank 0 first sends to it,
and ends when rank 0 has. So a rank is made when that message leaves, and until then it is nothing but a name. It begins
before the message arrives, and waits for it like a rank that has waited since the run began.
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
    """The transport of a rank that rested: its first recv has waited since the run began."""

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
    members: Members, routes: ChannelRoutes, left_s: float | None, latency_s: Callable[[int, int], float]
) -> list[NodeRecord]:
    """Return the record of every rank. Those that still rest have that of the one which was made to end for them.

    *left_s*: when rank 0 ended; the news of it travels for *latency_s* from one rank to another.
    """
    awake = {member.rank: member.recorder.record for member in members}
    like = next((record for record in reversed(awake.values()) if record.is_idle), None)
    ends_s: dict[object, float] = {}
    only = routes.topology.only_links if len(awake) < len(members) else {}
    found = []
    for rank, name in enumerate(routes.topology.workers):
        record = awake.get(rank)
        if record is None and (like is None or left_s is None):
            record = NodeRecord(rank, name, samples=[Ledger().notes()])  # it has never begun
        elif record is None:
            assert like is not None
            assert left_s is not None
            key = _end(name, only.get(name))
            if key not in ends_s:
                ends_s[key] = left_s + latency_s(0, rank)
            record = copy(like)
            record.rank, record.name, record.finished_s = rank, name, ends_s[key]
        found.append(record)
    return found


def _end(name: str, link: Link | None) -> object:
    """Return what the routes of node *name* with only *link* depend on: equal for nodes that are equally far away."""
    return name if link is None else (link.b if link.a == name else link.a, link.latency_s, link.bandwidth_Bps)
