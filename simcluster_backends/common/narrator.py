"""The thread in which a real node logs a line about itself every few seconds, whatever its event loop does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from simcluster_backends.common.log_line import Reading, fields_of, text_of
from simcluster_backends.common.machine import Machine
from simcluster_backends.common.real_node import Activity

log = logging.getLogger("simcluster.node")

FIRST_S, EVERY_S = 1.0, 5.0
END_S = 2.0
"""Time for the last line; beyond it, the thread is left alone."""


class Narrator:
    """Logs a line about the node of *activity* from `begin` to `end`, and takes the readings of its *machine*.

    The thread only reads: a node with lines does exactly what it does without them.
    """

    def __init__(self, activity: Activity) -> None:
        self.machine: Mapping[str, float] = {}
        self._activity, self._over = activity, threading.Event()
        record = activity.recorder.record
        self._rank, self._name = record.rank, record.name
        self._thread = threading.Thread(target=self._run, name=f"lines of {self._name}", daemon=True)

    def begin(self) -> None:
        self._began = self._last = reading_of(self._activity, {})
        self._said_end = False
        self._thread.start()

    def end(self) -> None:
        """Log the last line."""
        self._over.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        machine = Machine()
        wait_s = FIRST_S
        while not self._over.wait(wait_s):
            self.machine = machine.read()
            self._say()
            wait_s = EVERY_S
        self.machine = machine.read()
        self._say(over=True)

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


def reading_of(activity: Activity, machine: Mapping[str, float]) -> Reading:
    """Return the counters of the node of *activity* now; in any thread."""
    recorder, pace = activity.recorder, activity.recorder.pace
    samples = pace.samples() if pace is not None else 0
    finished_s = recorder.finished_s
    return Reading(
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
