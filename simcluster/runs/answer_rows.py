"""The rows that a run of a language model records: each token, and the end of each answer."""

from __future__ import annotations

from typing import Literal

import msgspec

Reason = Literal["stop", "length", "cancelled", "error"]
"""The reason why an answer ended: an end token, a limit on tokens, cancellation, or a lost node."""


class TokenRecord(msgspec.Struct, tag="token", array_like=True, frozen=True):
    """A token that a node emitted at *time_s*, with its *number* in the answer to *request*."""

    time_s: float
    request: str
    number: int
    token: int


class EndRecord(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """The end of the answer to *request* at *time_s* of the run, after *tokens* tokens."""

    time_s: float
    request: str
    tokens: int
    reason: Reason


AnswerRow = TokenRecord | EndRecord
