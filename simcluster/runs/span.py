"""A span: one thing that a node did for a while."""

from __future__ import annotations

from typing import Literal, NamedTuple

SpanKind = Literal["compute", "send", "recv"]


class Span(NamedTuple):
    """What a node did from *start_s* to *end_s*: computed, or waited in send or recv. *peer* is a rank, -1 if none."""

    kind: SpanKind
    start_s: float
    end_s: float
    peer: int
    tag: str
    size_bytes: int
