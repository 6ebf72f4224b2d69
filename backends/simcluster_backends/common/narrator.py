"""The thread in which a real node logs a line about itself every few seconds, whatever its event loop does."""

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
"""Time for a reading of the machine; beyond it, a line has the reading before."""

END_S = 2.0
"""Time for the last line; beyond it, the thread is left alone."""


class Narrator:
    """Logs a line about the node of *activity* from `begin` to `end`, and takes the readings of its *machine*.

    The last line is logged as soon as the algorithm has ended. The threads only read: a node with lines does exactly
    what it does without them. A sensor that hangs holds up its own thread, not the lines.
    """

    def __init__(self, activity: NodeActivity) -> None:
        self.machine: Mapping[str, float] = {}
        self._activity, self._wake, self._is_over = activity, threading.Event(), False
        record = activity.recorder.record
        self._rank, self._name = record.rank, record.name
        self._thread = threading.Thread(target=self._run, name=f"lines of {self._name}", daemon=True)
        self._wanted, self._read, self._is_read = threading.Event(), threading.Event(), False
        self._reader = threading.Thread(target=self._read_on, name=f"readings of {self._name}", daemon=True)

    def begin(self) -> None:
        self._began = self._last = reading_of(self._activity, {})
        self._said_end = False
        self._activity.recorder.on_end = self._wake.set
        self._reader.start()
        self._thread.start()

    def end(self) -> None:
        """Log the last line, unless it is logged."""
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
        """Log a line, unless the algorithm has ended and the last one is logged: what follows is off the clock."""
        ended = over or self._activity.recorder.finished_s is not None
        if not log.isEnabledFor(logging.INFO) or (ended and self._said_end):
            return
        before, now = (self._began if ended else self._last), reading_of(self._activity, self.machine)
        self._last, self._said_end = now, ended
        fields = fields_of(before, now, ended=ended)
        own = {"component": "node", "rank": self._rank, "node": self._name}
        log.info("%s", text_of(self._name, fields), extra={"fields": own | fields})


def reading_of(activity: NodeActivity, machine: Mapping[str, float]) -> CounterReading:
    """Return the counters of the node of *activity* now; in any thread."""
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
