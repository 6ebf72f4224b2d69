"""A launcher's report of its run, derived from its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcluster.errors import ABSENT
from simcluster.topology import Topology
from simcluster.watching.board import NodeTelemetry, Telemetry
from simcluster.watching.telling import Noted, link_telemetry, with_rows
from simcluster_backends.sockets.launcher.member import Member


class Teller:
    """The telemetry of *members*, connected as in *topology*. Reads each metric and span once."""

    def __init__(self, members: Sequence[Member], topology: Topology | None) -> None:
        self._members, self._topology = members, topology
        self._noted = [Noted() for _ in members]

    def telemetry(self, elapsed_s: float, now_s: float, faults: Sequence[dict[str, Any]]) -> Telemetry:
        """Return the state at *elapsed_s* of the run's clock, *now_s* of the launcher's."""
        nodes = [self._node(member, now_s) for member in self._members]
        sent = [_sent_to(member) for member in self._members]
        links = link_telemetry([member.name for member in self._members], self._topology, sent)
        return Telemetry(elapsed_s=elapsed_s, nodes=nodes, links=links, faults=list(faults))

    def _node(self, member: Member, now_s: float) -> NodeTelemetry:
        status, noted = member.status, self._noted[member.rank]
        noted.read(member.metrics, member.spans)
        told = NodeTelemetry(
            name=member.name,
            rank=member.rank,
            state=state_of(member),
            bytes_received=status.bytes_received if status is not None else 0,
            step=member.steps,
            silent_s=None if member.connection is None else max(0.0, now_s - member.heard_s),
            computing=bool(status and status.computing),
            waits=status.waits if status is not None else [],
            stalled_s=status.stalled_s if status is not None else 0.0,
            reason=member.gone or "",
        )
        return with_rows(told, noted, _sent_to(member))


def state_of(member: Member) -> str:
    """Return expected, joined, running, ended or lost."""
    if member.gone is not None:
        return "expected" if member.gone == ABSENT else "lost"
    if member.outcome is not None or member.algorithm_ended:
        return "ended"
    if member.connection is None:
        return "expected"
    return "running" if member.status is not None and (member.status.steps or member.status.moved) else "joined"


def _sent_to(member: Member) -> dict[int, list[int]]:
    if member.outcome is not None:
        return member.outcome.record.sent_to
    return member.status.sent_to if member.status is not None else {}
