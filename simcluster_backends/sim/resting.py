"""Nodes that rest: what a cluster keeps of a rank that no message has been sent to, and what it records of one.

An algorithm says that its ranks rest (`Facts.rests`): each except rank 0 does nothing until rank 0 first sends to it,
and ends when rank 0 has. So a rank is made when that message leaves, and until then it is nothing but a name. It begins
before the message arrives, and waits for it like a rank that has waited since the run began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from simcluster.runs.record import NodeRecord
from simcluster.transport import ANY, Any_
from simcluster.workloads.ledger import Ledger
from simcluster_backends.sim.transport import SimTransport

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster.topology import Link, Topology
    from simcluster_backends.sim.members import Members


class Rested(SimTransport):
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
    members: Members, topology: Topology, left_s: float | None, latency_s: Callable[[int, int], float]
) -> list[NodeRecord]:
    """Return the record of every rank. Those that still rest have that of the one which was made to end for them.

    *left_s*: when rank 0 ended; the news of it travels for *latency_s* from one rank to another.
    """
    awake = {member.rank: member.recorder.record for member in members}
    like = next((record for record in reversed(awake.values()) if record.is_idle), None)
    latencies_s: dict[object, float] = {}
    ends = _ends(topology) if len(awake) < len(members) else {}
    found = []
    for rank, name in enumerate(topology.workers):
        record = awake.get(rank)
        if record is None and (like is None or left_s is None):
            record = NodeRecord(rank, name, samples=[Ledger().notes()])  # it has never begun
        elif record is None:
            assert like is not None
            assert left_s is not None
            key = ends.get(name, name)
            if key not in latencies_s:
                latencies_s[key] = latency_s(0, rank)
            record = replace(like, rank=rank, name=name, finished_s=left_s + latencies_s[key])
        found.append(record)
    return found


def _ends(topology: Topology) -> dict[str, tuple[object, ...]]:
    """Return, for each node with one link, what its routes depend on: equal for nodes that are equally far away."""
    links: dict[str, list[Link]] = {}
    for link in topology.links:
        links.setdefault(link.a, []).append(link)
        links.setdefault(link.b, []).append(link)
    only = {name: of_it[0] for name, of_it in links.items() if len(of_it) == 1}
    return {
        name: (link.b if link.a == name else link.a, link.latency_s, link.bandwidth_Bps) for name, link in only.items()
    }
