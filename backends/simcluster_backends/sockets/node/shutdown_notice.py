"""Ask a node to leave, on its launcher's order or on SIGTERM, and drain its last messages."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from simcluster.fault_plans.kinds import NOTICE_S
from simcluster.process.signals import kill
from simcluster.runs.event_order import EventKind

if TYPE_CHECKING:
    from simcluster.runs.event_notes import Notes
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.sockets.net.link import PeerLink

SEEN_OFF_S = 10.0
"""The limit on a leaving node's wait for slow peers to receive its messages."""


class Notice:
    """The notice that asks a node to leave. *notes* records it, so that a replay can repeat it."""

    def __init__(self, recorder: Recorder, notes: Notes | None) -> None:
        self._recorder = recorder
        self._notes = notes
        self._loop = asyncio.get_running_loop()
        self._overdue: threading.Timer | None = None
        self._may_heed = threading.current_thread() is threading.main_thread()  # no other thread handles signals

    def heed_sigterm(self) -> None:
        """Treat the next SIGTERM as a notice of NOTICE_S. A second one kills the process."""
        if self._may_heed:
            self._loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)

    def give(self, notice_s: float = 0.0) -> None:
        """Ask the algorithm to end after its current step.

        With *notice_s*, kill the process if the algorithm still runs after that time.
        """
        if notice_s and self._overdue is None:
            # Wait in a thread: an algorithm that is overdue may be blocking the loop.
            self._overdue = threading.Timer(notice_s, kill, (os.getpid(),))
            self._overdue.daemon = True
            self._overdue.start()
        if not self._recorder.told_to_leave:
            if self._notes is not None:
                self._notes.note(EventKind.TOLD, 0)
            self._recorder.told_to_leave = True

    def over(self) -> None:
        """Withdraw the notice: the algorithm has ended."""
        if self._may_heed:
            self._loop.remove_signal_handler(signal.SIGTERM)
        if self._overdue is not None:
            self._overdue.cancel()

    def _on_sigterm(self) -> None:
        self._loop.remove_signal_handler(signal.SIGTERM)
        self.give(NOTICE_S)


async def seen_off(links: Iterable[PeerLink]) -> None:
    """Wait until every peer has received everything and closed its link, for at most SEEN_OFF_S.

    A peer closes the link when it receives a goodbye with a reason.
    """
    loop = asyncio.get_running_loop()
    left = {link: loop.create_future() for link in links if link.is_open}

    def lost(link: PeerLink, reason: str) -> None:
        if not left[link].done():
            left[link].set_result(None)

    for link in left:
        link.on_lost = partial(lost, link)
    if left:
        await asyncio.wait(left.values(), timeout=SEEN_OFF_S)
