"""Requests as a client sees them, and their latencies (formulas of `vllm bench serve`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that arrived at *arrival_s*, and its answer, which ended at *end_s*.

    *token_s* has the times at which tokens arrived. Several tokens may arrive at one of these
    times; *output_tokens* is the number of tokens. *error* is the kind of the failure, or empty.
    """

    arrival_s: float
    token_s: tuple[float, ...]
    end_s: float
    prompt_tokens: int
    output_tokens: int
    error: str = ""

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.token_s[0] - self.arrival_s

    @property
    def e2el_s(self) -> float:
        """End-to-end latency."""
        return self.end_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first, or None if the answer has only one token."""
        return (self.e2el_s - self.ttft_s) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies: the intervals between tokens."""
        return [after - before for before, after in pairwise(self.token_s)]


@dataclass(frozen=True)
class Objectives:
    """Limits on the latencies of a request that counts as good; None is no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2el_s: float | None = None

    def met_by(self, answer: AnsweredRequest) -> bool:
        """Return whether *answer* meets all objectives.

        An answer of one token has no TPOT to meet.
        """
        pairs = ((self.ttft_s, answer.ttft_s), (self.tpot_s, answer.tpot_s), (self.e2el_s, answer.e2el_s))
        return all(most is None or found is None or found <= most for most, found in pairs)
