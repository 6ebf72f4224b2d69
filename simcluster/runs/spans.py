"""Spans of a node's activity, and the summary of those beyond the limit."""

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
    """A node's activity from *start_s* to *end_s*: compute, or waiting in send or recv. *peer* is a rank or -1.

    A node that runs a script also has each call of a collective, from its issue to its end, and each wait of the script
    for one. Their *tag* is "operation ranks", such as "all_reduce 0-2", with "all" for every rank. A "step" is from the
    end of the step before to its own.
    """

    kind: SpanKind
    start_s: float
    end_s: float
    peer: int
    tag: str
    size_bytes: int


span_of: Callable[[tuple[SpanKind, float, float, int, str, int]], Span] = partial(tuple.__new__, Span)
"""Makes a span of its values, in half the time that Span takes."""

PARTS = 256
AT_ONCE = 256
"""Spans that are summed up at once."""


@dataclass
class Rest:
    """The sum of *spans* spans that the record does not hold: *compute_s* seconds of work; *digest* hashes all of them.

    Part i begins at i * *width_s*: during it the device worked for busy_s[i] seconds, and sends of sent_bytes[i] bytes
    ended. *width_s* is a power of two, so that nodes with different widths compare; 0 without any work or send.
    """

    spans: int = 0
    compute_s: float = 0.0
    digest: str = ""
    width_s: float = 0.0
    busy_s: list[float] = field(default_factory=lambda: [0.0] * PARTS)
    sent_bytes: list[int] = field(default_factory=lambda: [0] * PARTS)

    def widen(self) -> None:
        """Make each part twice as long."""
        self.width_s *= 2
        half = PARTS // 2
        self.busy_s = [a + b for a, b in zip(self.busy_s[::2], self.busy_s[1::2], strict=True)] + [0.0] * half
        self.sent_bytes = [a + b for a, b in zip(self.sent_bytes[::2], self.sent_bytes[1::2], strict=True)] + [0] * half

    def later(self, by_s: float) -> Rest:
        """Return the same rest *by_s* later: each part's content is moved to its middle."""
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
    """Sums up spans as they arrive; `total` is the sum so far."""

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
        """The sum so far, or None without spans."""
        self._sum_up()
        self._total.digest = self._hash.hexdigest()
        return self._total if self._total.spans else None

    def _sum_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # The elements without their array's header: the hash does not depend on the batches.
        self._hash.update(msgspec.msgpack.encode(waiting)[1 if len(waiting) < 16 else 3 :])
        self._total.spans += len(waiting)
        for kind, start_s, end_s, _, _, size_bytes in waiting:
            if kind != "recv":
                self._total.add(kind, start_s, end_s, size_bytes)
