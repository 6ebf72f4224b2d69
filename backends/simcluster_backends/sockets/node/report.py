"""The reports of a node to its launcher: its progress, a stuck event loop, and its outcome."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simcluster.process.own_frames import place
from simcluster.runs.record import NodeRecord, hand_in, told
from simcluster_backends.common.failure import Failure
from simcluster_backends.common.narrator import Narrator
from simcluster_backends.common.waiting import waiting_at
from simcluster_backends.sockets.node.member import SocketMember
from simcluster_backends.sockets.wire import messages as wire

WAITS_SHOWN = 20
SHOWN_S = 1.0
"""The time after which an event loop that has not turned is reported as stuck."""


class Pulse:
    """A probe of an event *loop*, which shows whether the loop still turns.

    Create it in the loop's thread. Call `stalled` in another thread, about every *interval_s*.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, interval_s: float) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._asked_s = self._called_s = time.monotonic()
        self._asking = threading.Event()
        self._patience_s = 2 * interval_s + 1.0

    def stalled(self) -> tuple[float, str]:
        """Return (seconds since the loop turned, the location in the code that its thread has
        reached).

        Return (0, "") if the loop is not stuck.

        `compute` does not stall the loop: it runs in another thread.
        """
        now_s = time.monotonic()
        if now_s - self._called_s > self._patience_s:
            self._asked_s = now_s  # the whole process slept: do not blame the loop
        self._called_s = now_s
        if not self._asking.is_set():
            self._asking.set()
            self._asked_s = now_s
            try:
                self._loop.call_soon_threadsafe(self._asking.clear)
            except RuntimeError:
                self._asking.clear()  # the loop is closed
        stalled_s = now_s - self._asked_s
        if stalled_s < SHOWN_S:
            return 0.0, ""
        return stalled_s, place(sys._current_frames().get(self._thread))

    def waiting_at(self) -> list[str]:
        """Return the locations in the code at which the tasks of the loop wait."""
        return waiting_at(asyncio.all_tasks(self._loop))


class Reports:
    """The reports of *member*; *pulse* probes its event loop, and *narrator* meters its machine."""

    def __init__(self, member: SocketMember, pulse: Pulse, narrator: Narrator) -> None:
        self._member = member
        self._pulse = pulse
        self._narrator = narrator
        self._sent = [0, 0, 0, 0]  # the number of rows sent: metrics, spans, evaluations, answers

    def next(self, *, has_begun: bool) -> list[wire.FromNode]:
        """Return messages with the progress, and with the rows and events since the last report.

        Until the program *has_begun*, the report has no waits.
        """
        recorder, progress = self._member.recorder, self._member.progress
        record = recorder.record
        sent_to = {to: list(count) for to, count in list(record.sent_to.items())}
        waits = list(progress.waits[:WAITS_SHOWN]) if has_begun else []
        messages: list[wire.FromNode] = [
            wire.NodeStatus(
                progress.moved,
                progress.done,
                progress.computing,
                waits,
                record.steps,
                sent_to,
                record.bytes_received,
                progress.ended,
                *self._pulse.stalled(),
                recorder.ledger() if recorder.ledger is not None else None,
                dict(self._narrator.machine),
                self._pulse.waiting_at() if has_begun else [],
                self._member.inbox.unread() if waits else [],
            )
        ]
        messages += self._rows()
        if self._member.notes is not None:
            messages += map(wire.OrderPiece, self._member.notes.take())
        return messages

    def _rows(self) -> Iterator[wire.RecordRows]:
        """Yield the rows of the node's record since the last call."""
        record, evaluations = self._member.recorder.record, self._member.recorder.evaluations
        noted: list[list[Any]] = [record.metrics, record.spans, evaluations, record.answers]
        while any(parts := [rows[n : n + wire.ROWS_A_FRAME] for rows, n in zip(noted, self._sent, strict=True)]):
            self._sent = [n + len(part) for n, part in zip(self._sent, parts, strict=True)]
            yield wire.RecordRows(*parts)

    def last(self, record: NodeRecord, failure: Failure | None, lane_bytes: int) -> wire.NodeOutcome:
        """Return the outcome, without the rows and weights, which are sent separately.

        *lane_bytes* is the number of bytes sent on the control lane.
        """
        sent = lane_bytes + self._member.handshake_and_goodbye_bytes
        record = replace(
            record, metrics=[], spans=[], answers=[], weights=None, copies=told(record.copies),
            control_bytes=sent,
        )  # fmt: skip
        return wire.NodeOutcome(record, failure)


def pieces_of(record: NodeRecord) -> Iterator[wire.WeightsPiece]:
    """Yield the large contents of *record* in pieces."""
    for content in hand_in(record):
        for piece, _ in wire.in_pieces(content):
            yield wire.WeightsPiece(piece)
