"""The spans of a node's activity, and the sum of those beyond the limit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import msgspec

SpanKind = Literal["compute", "send", "recv", "call", "wait", "step"]


class Span(NamedTuple):
    """A node's activity from *start_s* to *end_s*: it computes, or waits in send or recv.

    *peer* is a rank, or -1 if there is none. A node that runs a script has three more kinds. A
    "call" is a collective, from its start to its end; a "wait" is the script's wait for one. The
    *tag* of both is "operation ranks", such as "all_reduce 0-2", with "all" for every rank. A
    "step" begins at the end of the step before.
    """

    kind: SpanKind
    start_s: float
    end_s: float
    peer: int
    tag: str
    size_bytes: int


span_of: Callable[[tuple[SpanKind, float, float, int, str, int]], Span] = partial(tuple.__new__, Span)
"""Make a span from its values, in half the time of a call of Span."""

PARTS = 256
"""The number of parts of time into which `Rest` divides a run."""

AT_ONCE = 256
"""The number of spans that `Adder` collects before summing: encoding many at once is faster."""


@dataclass
class Rest:
    """The sum of the spans that a record does not hold: their number, work and hash.

    Time is divided into PARTS parts of *width_s*. During part i, the device worked for busy_s[i]
    seconds, and sends of sent_bytes[i] bytes ended. *width_s* is a power of two, so that parts of
    different nodes can be compared; it is 0 if there is no work and no send.
    """

    spans: int = 0
    compute_s: float = 0.0
    digest: str = ""
    width_s: float = 0.0
    busy_s: list[float] = field(default_factory=lambda: [0.0] * PARTS)
    sent_bytes: list[int] = field(default_factory=lambda: [0] * PARTS)

    def widen(self) -> None:
        """Double the width of the parts: merge each pair, and begin the second half empty."""
        self.width_s *= 2
        half = PARTS // 2
        self.busy_s = [a + b for a, b in zip(self.busy_s[::2], self.busy_s[1::2], strict=True)] + [0.0] * half
        self.sent_bytes = [a + b for a, b in zip(self.sent_bytes[::2], self.sent_bytes[1::2], strict=True)] + [0] * half

    def later(self, by_s: float) -> Rest:
        """Return this sum, shifted by *by_s*.

        The content of each part moves as if it were in the middle of the part.
        """
        if not self.width_s:
            return self
        moved = Rest(self.spans, 0.0, self.digest, self.width_s)
        for part in range(PARTS):
            middle_s = (part + 0.5) * self.width_s + by_s
            half_s = self.busy_s[part] / 2
            moved.add("compute", middle_s - half_s, middle_s + half_s, 0)
            moved.add("send", middle_s, middle_s, self.sent_bytes[part])
        moved.compute_s = self.compute_s
        return moved

    def add(self, kind: str, start_s: float, end_s: float, size_bytes: int) -> None:
        """Add one span to the parts that it overlaps."""
        # The first width is the least power of two with which the span fits.
        if self.width_s == 0.0:
            self.width_s = math.ldexp(1.0, math.frexp(max(end_s, 1e-9) / PARTS)[1])
        while end_s >= self.width_s * PARTS:
            self.widen()
        last = int(end_s / self.width_s)
        if kind == "send":
            self.sent_bytes[last] += size_bytes
        elif kind == "compute":
            self.compute_s += end_s - start_s
            for part in range(int(start_s / self.width_s), last + 1):
                begins_s = part * self.width_s
                self.busy_s[part] += max(0.0, min(end_s, begins_s + self.width_s) - max(start_s, begins_s))


class Adder:
    """An accumulator of spans: `add` takes them one by one, and `total` is their sum so far."""

    def __init__(self) -> None:
        self._total = Rest()
        self._hash = hashlib.sha256()
        self._waiting: list[tuple[str, float, float, int, str, int]] = []

    def add(self, span: tuple[str, float, float, int, str, int]) -> None:
        self._waiting.append(span)
        if len(self._waiting) >= AT_ONCE:
            self._sum_up()

    @property
    def total(self) -> Rest | None:
        """The sum so far; None if there are no spans."""
        self._sum_up()
        self._total.digest = self._hash.hexdigest()
        return self._total if self._total.spans else None

    def _sum_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # Hash the elements without the header of their array, so that the size of a batch does not
        # matter.
        self._hash.update(msgspec.msgpack.encode(waiting)[1 if len(waiting) < 16 else 3 :])
        self._total.spans += len(waiting)
        for kind, start_s, end_s, _, _, size_bytes in waiting:
            if kind != "recv":
                self._total.add(kind, start_s, end_s, size_bytes)
