"""A thread that logs a line about a real node every few seconds, even if its loop is blocked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from simcluster_backends.common.log_line import CounterReading, fields_of, text_of
from simcluster_backends.common.machine import MachineMeter
from simcluster_backends.common.real_node import NodeActivity

log = logging.getLogger("simcluster.node")

FIRST_S, EVERY_S = 1.0, 5.0
READ_S = 0.25
"""The time limit for a reading of the machine; a line that is due then has the previous reading."""

END_S = 2.0
"""The time limit for logging the last line; after that, the thread is abandoned."""


class Narrator:
    """Two threads: one logs lines about the node of *activity*, the other reads its *machine*.

    They run from `begin` to `end`. The last line is logged as soon as the algorithm has ended. Both
    threads only read, so they change nothing in the node. A sensor that hangs blocks only the
    second thread.
    """

    def __init__(self, activity: NodeActivity) -> None:
        self.machine: Mapping[str, float] = {}
        self._activity = activity
        self._wake = threading.Event()
        self._is_over = False
        record = activity.recorder.record
        self._rank = record.rank
        self._name = record.name
        self._thread = threading.Thread(target=self._run, name=f"lines of {self._name}", daemon=True)
        self._wanted = threading.Event()
        self._read = threading.Event()
        self._is_read = False
        self._reader = threading.Thread(target=self._read_on, name=f"readings of {self._name}", daemon=True)

    def begin(self) -> None:
        self._began = self._last = reading_of(self._activity, {})
        self._said_end = False
        self._activity.recorder.on_end = self._wake.set
        self._reader.start()
        self._thread.start()

    def end(self) -> None:
        """Log the last line, unless it has been logged."""
        self._is_over = True
        self._wake.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        wait_s, over = FIRST_S, False
        while not over:
            self._wake.wait(wait_s)
            self._wake.clear()
            over = self._is_over
            self._read.clear()
            self._wanted.set()
            self._read.wait(READ_S)
            self._say(over=over)
            wait_s = EVERY_S
        self._is_read = True
        self._wanted.set()

    def _read_on(self) -> None:
        machine = MachineMeter()
        while self._wanted.wait() and not self._is_read:
            self._wanted.clear()
            self.machine = machine.read()
            self._read.set()

    def _say(self, *, over: bool = False) -> None:
        """Log a line, unless the last line has been logged. The last line covers the whole run."""
        ended = over or self._activity.recorder.finished_s is not None
        if not log.isEnabledFor(logging.INFO) or (ended and self._said_end):
            return
        before, now = (self._began if ended else self._last), reading_of(self._activity, self.machine)
        self._last, self._said_end = now, ended
        fields = fields_of(before, now, ended=ended)
        own = {"component": "node", "rank": self._rank, "node": self._name}
        log.info("%s", text_of(self._name, fields), extra={"fields": own | fields})


def reading_of(activity: NodeActivity, machine: Mapping[str, float]) -> CounterReading:
    """Return the current counters of the node of *activity*. Safe in any thread."""
    recorder, pace = activity.recorder, activity.recorder.pace
    samples = pace.samples() if pace is not None else 0
    finished_s = recorder.finished_s
    return CounterReading(
        at_s=recorder.now() if finished_s is None else finished_s,
        step=recorder.step,
        steps=pace.steps if pace is not None and (pace.in_step or samples) else None,
        loss=recorder.latest.get("loss"),
        samples=samples,
        tokens=pace.tokens if pace is not None else None,
        seconds=activity.device.shares.totals(),
        waits=activity.waits(),
        machine=machine,
    )
