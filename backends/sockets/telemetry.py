"""What a launcher tells of its run, from what it knows of its members.

This file knows members, links and the last words of nodes. It must not know who is told, nor HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backends.sockets.coordinator.board import LinkTelemetry, NodeTelemetry, Telemetry
from backends.sockets.member import Member
from simcluster.results.record import Metric
from simcluster.topology import Topology

WAITS_TOLD = 3


class Teller:
    """Tells of *members*, whose connections are those of *topology*. It remembers what it has looked through."""

    def __init__(self, members: Sequence[Member], topology: Topology | None) -> None:
        self._members, self._topology = members, topology
        self._seen = [0] * len(members)
        self._values: list[dict[str, float]] = [{} for _ in members]
        self._steps = [0] * len(members)

    def telemetry(self, elapsed_s: float, now_s: float, faults: Sequence[dict[str, Any]]) -> Telemetry:
        """All that is known at *elapsed_s* of the run's clock, which is *now_s* by the launcher's own."""
        nodes = [self._node(member, now_s) for member in self._members]
        return Telemetry(elapsed_s=elapsed_s, nodes=nodes, links=self._links(), faults=list(faults))

    def _node(self, member: Member, now_s: float) -> NodeTelemetry:
        rank, status = member.rank, member.status
        for metric in member.metrics[self._seen[rank] :]:
            self._note(rank, metric)
        self._seen[rank] = len(member.metrics)
        values, sent = self._values[rank], _sent_to(member)
        return NodeTelemetry(
            name=member.name,
            rank=rank,
            state=state_of(member),
            step=max(member.steps, self._steps[rank]),
            loss=values.get("loss"),
            staleness=values.get("staleness"),
            silent_s=None if member.connection is None else max(0.0, now_s - member.heard_s),
            computing=bool(status and status.computing),
            waits=status.waits[:WAITS_TOLD] if status is not None else [],
            stalled_s=status.stalled_s if status is not None else 0.0,
            messages_sent=sum(count[0] for count in sent.values()),
            bytes_sent=sum(count[1] for count in sent.values()),
            bytes_received=status.bytes_received if status is not None else 0,
            metrics=values.copy(),
            reason=member.gone or "",
        )

    def _note(self, rank: int, metric: Metric) -> None:
        self._values[rank][metric.name] = metric.value
        self._steps[rank] = max(self._steps[rank], metric.step)

    def _links(self) -> list[LinkTelemetry]:
        """Each pair's bytes on the links between them; on the pair itself where no topology is known."""
        carried: dict[str, list[int]] = {}
        capacities: dict[str, float] = {}
        names = [member.name for member in self._members]
        if self._topology is not None:
            carried = {link.name: [0, 0] for link in self._topology.links}
            capacities = {link.name: link.bandwidth_Bps for link in self._topology.links}
        for member in self._members:
            for peer, (_, size_bytes) in _sent_to(member).items():
                if self._topology is None:
                    low, high = sorted((member.rank, peer))
                    carried.setdefault(f"{names[low]}-{names[high]}", [0, 0])[member.rank > peer] += size_bytes
                    continue
                for hop in self._topology.route(member.name, names[peer]):
                    carried[hop.link.name][not hop.forward] += size_bytes
        return [
            LinkTelemetry(name=name, bytes_forward=there, bytes_backward=back, capacity_Bps=capacities.get(name))
            for name, (there, back) in carried.items()
        ]


def state_of(member: Member) -> str:
    """expected, joined, running, ended or lost."""
    if member.gone is not None:
        return "lost"
    if member.outcome is not None or member.algorithm_ended:
        return "ended"
    if member.connection is None:
        return "expected"
    return "running" if member.status is not None and (member.status.steps or member.status.moved) else "joined"


def _sent_to(member: Member) -> dict[int, list[int]]:
    if member.outcome is not None:
        return member.outcome.record.sent_to
    return member.status.sent_to if member.status is not None else {}
