"""The reports of a node to its launcher: how far it is, and in the end its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simcluster.runs.copies import hand_in, told
from simcluster.runs.record import NodeRecord
from simcluster_backends.common.failure import Failure
from simcluster_backends.sockets.node.member import Member
from simcluster_backends.sockets.node.stall_detector import Pulse
from simcluster_backends.sockets.wire.messages import (
    ROWS_A_FRAME,
    FromNode,
    Ordered,
    Outcome,
    Piece,
    Rows,
    Status,
    in_pieces,
)

WAITS_SHOWN = 20


class Reports:
    """Those of *member*, whose event loop *pulse* watches."""

    def __init__(self, member: Member, pulse: Pulse) -> None:
        self._member, self._pulse = member, pulse
        self._metrics_sent = self._spans_sent = 0

    def next(self, *, has_begun: bool) -> list[FromNode]:
        """How far the node is, and what it noted since the last report. Before the program *has_begun*, none waits."""
        recorder, progress = self._member.recorder, self._member.progress
        record = recorder.record
        sent_to = {to: list(count) for to, count in list(record.sent_to.items())}
        messages: list[FromNode] = [
            Status(
                progress.moved,
                progress.done,
                progress.computing,
                list(progress.waits[:WAITS_SHOWN]) if has_begun else [],
                record.steps,
                sent_to,
                record.bytes_received,
                progress.ended,
                *self._pulse.stalled(),
                recorder.ledger() if recorder.ledger is not None else None,
            )
        ]
        while len(record.metrics) > self._metrics_sent or len(record.spans) > self._spans_sent:
            metrics = record.metrics[self._metrics_sent : self._metrics_sent + ROWS_A_FRAME]
            spans = record.spans[self._spans_sent : self._spans_sent + ROWS_A_FRAME]
            self._metrics_sent += len(metrics)
            self._spans_sent += len(spans)
            messages.append(Rows(metrics, spans))
        if self._member.notes is not None:
            messages += map(Ordered, self._member.notes.take())
        return messages

    def last(self, record: NodeRecord, failure: Failure | None, lane_bytes: int) -> Outcome:
        """The outcome, without what goes ahead of it in pieces; *lane_bytes* is what went over the control lane."""
        control_bytes = lane_bytes + self._member.handshake_and_goodbye_bytes
        rest = replace(
            record, metrics=[], spans=[], weights=None, copies=told(record.copies), control_bytes=control_bytes
        )
        return Outcome(rest, failure)


def pieces_of(record: NodeRecord) -> Iterator[Piece]:
    """Yield what is large of *record*."""
    for content in hand_in(record):
        for piece, _ in in_pieces(content):
            yield Piece(piece)
