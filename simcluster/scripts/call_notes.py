"""Record a script's calls and steps as spans in its node's record (see `simcluster.runs.spans`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from simcluster.runs.recorder import Recorder
from simcluster.runs.spans import SpanKind


class CallLabel(NamedTuple):
    """The *operation* of a call, the *ranks* that take part, and the size of its tensors in
    bytes.
    """

    operation: str
    ranks: tuple[int, ...]
    size_bytes: int


class CallNotes:
    """A writer of the script's calls and steps to the record of *node*."""

    def __init__(self, node: Any) -> None:
        self._recorder: Recorder = node.recorder
        self._size = node.size
        self._stepped_s: float | None = None

    @property
    def now_s(self) -> float:
        """The time by the record's clock, in seconds since the start of the run."""
        return self._recorder.now()

    @property
    def is_to_leave(self) -> bool:
        """Whether the node has been asked to leave at the end of its step."""
        return self._recorder.told_to_leave

    def note(self, kind: SpanKind, call: CallLabel, start_s: float, end_s: float) -> None:
        """Record that *call* was in flight, or was waited for, from *start_s* to *end_s*, depending
        on *kind*.
        """
        if kind == "wait" and end_s <= start_s:
            return
        ranks = "all" if len(call.ranks) == self._size else "-".join(map(str, call.ranks))
        self._recorder.span(kind, start_s, end_s, -1, f"{call.operation} {ranks}", call.size_bytes)

    def note_memory(self, peak_bytes: int) -> None:
        """Record the peak memory of the script's tensors so far. A peak of 0 means that it is
        unknown.
        """
        if peak_bytes:
            record = self._recorder.record
            record.predicted_peak_bytes = max(peak_bytes, record.predicted_peak_bytes or 0)

    def note_step(self, step: int) -> None:
        """Record that *step* has just ended.

        The first step gets no span, since its start is unknown.
        """
        now_s = self.now_s
        if self._stepped_s is not None:
            self._recorder.span("step", self._stepped_s, now_s, -1, f"step {step}", 0)
        self._stepped_s = now_s
