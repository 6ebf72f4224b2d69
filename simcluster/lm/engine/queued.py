"""A request on its way through an engine, and the tokens that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from simcluster.lm.engine.batch import NewSequence
from simcluster.lm.request import NO_LOGPROBS, Logprobs, Reason, Request

Row: TypeAlias = tuple[Sequence[int], Sequence[float]]
"""The ids and log-probabilities of a chosen token and the likeliest in its place; a negative id is void."""


@dataclass(slots=True, eq=False)
class RequestSequence:
    """A request, the *tokens* of its prompt and answer, and how many of them have gone through the model or are on
    their way: *issued*. *flying* counts its pieces in flight. *number* is its place in the order of arrival, *slot* its
    name at the stages; -1 while it waits.
    """

    request: Request
    number: int
    tokens: list[int]
    slot: int = -1
    issued: int = 0
    flying: int = 0

    @property
    def left(self) -> int:
        return len(self.tokens) - self.issued

    @property
    def decodes(self) -> bool:
        """Whether its next piece is the one token that was chosen last."""
        return self.issued > 0 and self.left == 1 and len(self.tokens) > len(self.request.prompt)

    def goes_on_as(self, request: Request) -> bool:
        """Whether *request* is the rest of this one: see simcluster.lm.request.rest."""
        size = len(request.prompt)
        known = tuple(max(token, 0) for token in self.tokens[:size])
        return known == request.prompt and size + request.max_tokens == self.most

    @property
    def most(self) -> int:
        """The most tokens that it can have."""
        return len(self.request.prompt) + self.request.max_tokens

    def opening(self, source: int = -1, prefix: int = 0) -> NewSequence:
        """Return what opens it at a stage; see NewSequence."""
        how, logprobs = self.request.sampling, self.request.logprobs
        return NewSequence(
            self.slot, self.most, how.temperature, how.top_k, how.top_p, how.seed, source, prefix, logprobs
        )


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """The next *token* of a request, and why the answer ends with it, if it does; *logprobs* if it asks for them."""

    request: str
    token: int
    reason: Reason | None
    logprobs: Logprobs | None = None


def number(sequence: RequestSequence) -> int:
    """Return the place of *sequence* in the order of arrival."""
    return sequence.number


def logprobs_in(row: Row | None, request: Request) -> Logprobs | None:
    """Return what *request* asks for of *row*, None if nothing."""
    if row is None or request.logprobs == NO_LOGPROBS:
        return None
    entries = list(zip(*row, strict=True))[: 1 + request.logprobs]
    return Logprobs(entries[0][1], tuple((token, value) for token, value in entries[1:] if token >= 0))


def next_chunks(running: Sequence[RequestSequence], each: int) -> list[tuple[RequestSequence, int]]:
    """Return the next chunks of those of *running* that are not decoding yet, in their order: *each* tokens in all.

    A chunk ends at a multiple of *each* of its sequence, whatever else is in the batch: so a request's numbers do not
    depend on its neighbours.
    """
    room, found = each, []
    for sequence in running:
        if sequence.left and not sequence.decodes:
            size = min(sequence.left, each - sequence.issued % each)
            if size > room:
                break
            found.append((sequence, size))
            room -= size
    return found
