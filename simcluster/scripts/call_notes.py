"""Notes of a script's calls and steps in the record of its node: spans, as `simcluster.runs.spans` describes them."""

from __future__ import annotations

from typing import Any, NamedTuple

from simcluster.runs.recorder import Recorder
from simcluster.runs.spans import SpanKind


class CallLabel(NamedTuple):
    """A call of *operation* among *ranks*, with *size_bytes*."""

    operation: str
    ranks: tuple[int, ...]
    size_bytes: int


class CallNotes:
    """Notes the calls of *node*'s script in the record that every backend's node has."""

    def __init__(self, node: Any) -> None:
        self._recorder: Recorder = node.recorder
        self._size = node.size
        self._stepped_s: float | None = None

    @property
    def now_s(self) -> float:
        """The clock of the record: 0 at the start of the run."""
        return self._recorder.now()

    @property
    def is_to_leave(self) -> bool:
        """Whether the node is asked to leave at the end of its step."""
        return self._recorder.told_to_leave

    def note(self, kind: SpanKind, call: CallLabel, start_s: float, end_s: float) -> None:
        """Note that *call* was in flight, or was waited for, from *start_s* to *end_s*."""
        if kind == "wait" and end_s <= start_s:
            return
        ranks = "all" if len(call.ranks) == self._size else "-".join(map(str, call.ranks))
        self._recorder.span(kind, start_s, end_s, -1, f"{call.operation} {ranks}", call.size_bytes)

    def note_memory(self, peak_bytes: int) -> None:
        """Note that the script's tensors have taken *peak_bytes* so far; 0 if that is unknown."""
        if peak_bytes:
            record = self._recorder.record
            record.predicted_peak_bytes = max(peak_bytes, record.predicted_peak_bytes or 0)

    def note_step(self, step: int) -> None:
        """Note that *step* has ended now. The first has no span, as it is not known when it began."""
        now_s = self.now_s
        if self._stepped_s is not None:
            self._recorder.span("step", self._stepped_s, now_s, -1, f"step {step}", 0)
        self._stepped_s = now_s
