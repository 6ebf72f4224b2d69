"""The desk of an engine: requests come in by a RequestSource, tokens go out by a TokenSink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from simcluster.lm.request import Logprobs, Reason, Request


@dataclass(frozen=True, slots=True)
class Cancel:
    """The wish to end the request *id* now. A request that has ended, or is unknown, is left as it is."""

    id: str


Order: TypeAlias = Request | Cancel


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node so far: seconds in which its device worked, and the bytes of the model's messages that it sent."""

    name: str
    busy_s: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The state of an engine after a batch. *preemptions* and *prefilled*, tokens that went through the model in
    chunks, count from its start.

    *cache_share* is the part of the cache's blocks in use, from 0 to 1. *nodes* are in the order of the ranks; a node's
    numbers are those of its last message to the first node, so they may be a batch old. Of the *proposed* guesses those
    *accepted* were right, from the start.
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
"""The numbers of an EngineLoad that count from an engine's start."""


class RequestSource(Protocol):
    """Where requests come from. The engine calls `next` in one task, never twice at once."""

    async def next(self) -> Order | None:
        """Wait for the next order. None means that no request will follow; a Cancel is then taken no longer."""


class TokenSink(Protocol):
    """Where answers go, at the time of the node that runs the engine. No method waits or raises.

    Every request that came from the source gets exactly one `end`, and no token after it.
    """

    def token(self, request: str, token: int, logprobs: Logprobs | None = None) -> None:
        """Take the next token of the request's answer, also an end token; with *logprobs* if it asks for them."""

    def end(self, request: str, reason: Reason, message: str = "") -> None:
        """Take the end of the request. *message* says why, if the reason is "error"."""

    def load(self, load: EngineLoad) -> None:
        """Take the state of the engine, before and after every batch and when it becomes idle."""
