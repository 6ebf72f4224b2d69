"""A node that is asked to leave, by its launcher or by SIGTERM, and how its last messages are drained."""

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
"""How long a leaving node waits for slow peers to take what it has sent."""


class Notice:
    """The notice to one node, noted in *notes* when the algorithm is notified: a replay leaves at the same step."""

    def __init__(self, recorder: Recorder, notes: Notes | None) -> None:
        self._recorder, self._notes = recorder, notes
        self._loop = asyncio.get_running_loop()
        self._overdue: threading.Timer | None = None
        self._may_heed = threading.current_thread() is threading.main_thread()  # no other thread handles signals

    def heed_sigterm(self) -> None:
        """Treat the first SIGTERM from now on as a notice of NOTICE_S; before, and the second time, it kills."""
        if self._may_heed:
            self._loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)

    def give(self, notice_s: float = 0.0) -> None:
        """Ask the algorithm to end after its step; with *notice_s*, kill the process if it runs longer than that."""
        if notice_s and self._overdue is None:
            # In a thread, since an algorithm that is overdue may block the loop.
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
    """Return when every peer has received everything after a goodbye with a reason, and closed, or is too slow."""
    loop = asyncio.get_running_loop()
    left = {link: loop.create_future() for link in links if link.is_open}

    def lost(link: PeerLink, reason: str) -> None:
        if not left[link].done():
            left[link].set_result(None)

    for link in left:
        link.on_lost = partial(lost, link)
    if left:
        await asyncio.wait(left.values(), timeout=SEEN_OFF_S)
