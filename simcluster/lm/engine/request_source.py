"""The sides of an engine's desk: requests come from a RequestSource, tokens go to a TokenSink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from simcluster.lm.request import Logprobs, Request
from simcluster.runs.answer_rows import Reason


class Cancel(msgspec.Struct, tag="Drop", frozen=True):
    """An order to end the request *id* now. It has no effect on an unknown or ended request."""

    id: str


Order: TypeAlias = Request | Cancel


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node's load so far: the seconds that its device was busy, and the bytes that it sent."""

    name: str
    busy_s: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The state of an engine: its *running* and *waiting* requests, and counts since its start.

    *cache_share* is the fraction of the cache's blocks in use. *nodes* has the load of each node,
    by rank, as of that node's last message to the first node; this may be one batch old.
    *prefilled* counts the tokens that passed the model in chunks, *proposed* the guesses that the
    model has checked, and *accepted* the guesses that were right.
    """

    running: int
    waiting: int
    cache_share: float
    preemptions: int
    nodes: tuple[NodeLoad, ...]
    prefilled: int = 0
    proposed: int = 0
    accepted: int = 0


COUNTS: Final = ("preemptions", "prefilled", "proposed", "accepted")
"""The fields of EngineLoad that count events since the engine's start."""


class AnswerToken(msgspec.Struct, tag="Token", frozen=True, omit_defaults=True):
    """The next *token* of the answer to *request*; it may be an end token.

    *logprobs* is None unless the request asks for log-probabilities.
    """

    request: str
    token: int
    logprobs: Logprobs | None = None


class AnswerEnd(msgspec.Struct, tag="End", frozen=True, omit_defaults=True):
    """The end of the answer to *request*. If the reason is "error", *message* explains it."""

    request: str
    reason: Reason
    message: str = ""


class RequestSource(Protocol):
    """A source of requests. The engine calls `next` in one task, never twice at once."""

    async def next(self) -> Order | None:
        """Wait for the next order; return None if none will follow, not even a Cancel."""


class TokenSink(Protocol):
    """A receiver of answers, on the node with the engine. Its methods must neither wait nor raise.

    It receives exactly one `end` for every request of the source, and no token after that.
    """

    def token(self, token: AnswerToken) -> None:
        """Take the next token of an answer."""

    def end(self, end: AnswerEnd) -> None:
        """Take the end of an answer."""

    def load(self, load: EngineLoad) -> None:
        """Take the state of the engine, which it reports around every batch and when idle."""
