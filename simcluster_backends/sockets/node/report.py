"""The reports of a node to its launcher: its progress, and finally its outcome."""

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
    """The reports of *member*; *pulse* watches its event loop."""

    def __init__(self, member: Member, pulse: Pulse) -> None:
        self._member, self._pulse = member, pulse
        self._metrics_sent = self._spans_sent = 0

    def next(self, *, has_begun: bool) -> list[FromNode]:
        """Return the progress and the rows since the last report. No waits are shown until the program *has_begun*."""
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
        """Return the outcome, without what is sent as pieces; *lane_bytes* is the traffic on the control lane."""
        control_bytes = lane_bytes + self._member.handshake_and_goodbye_bytes
        rest = replace(
            record, metrics=[], spans=[], weights=None, copies=told(record.copies), control_bytes=control_bytes
        )
        return Outcome(rest, failure)


def pieces_of(record: NodeRecord) -> Iterator[Piece]:
    """Yield the large contents of *record* in pieces."""
    for content in hand_in(record):
        for piece, _ in in_pieces(content):
            yield Piece(piece)
