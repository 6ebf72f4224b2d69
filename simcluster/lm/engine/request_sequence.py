"""A request in an engine, with the tokens of its prompt and of its answer so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeAlias

from simcluster.lm.engine.batch import NewSequence, RuledSequence
from simcluster.lm.request import NO_LOGPROBS, Logprobs, Request

Row: TypeAlias = tuple[Sequence[int], Sequence[float]]
"""Ids and log-probabilities of the chosen token, then of the likeliest; ids < 0 are padding."""


@dataclass(slots=True, eq=False)
class RequestSequence:
    """A request with the *tokens* of its prompt and of its answer so far.

    The first *issued* tokens have passed the model or are in flight. *flying* is the number of
    pieces in flight, and *number* the request's place in the order of arrival. The stages know the
    sequence by its *slot*, which is -1 while the request waits.
    """

    request: Request
    number: int
    tokens: list[int]
    slot: int = -1
    issued: int = 0
    flying: int = 0
    most: int = field(init=False)
    """Limit on the number of tokens: the prompt's length plus the most tokens of the answer."""

    def __post_init__(self) -> None:
        self.most = len(self.request.prompt) + self.request.max_tokens

    @property
    def left(self) -> int:
        return len(self.tokens) - self.issued

    @property
    def decodes(self) -> bool:
        """Whether the last token belongs to the answer and is the only one not issued yet."""
        return self.issued > 0 and self.left == 1 and len(self.tokens) > len(self.request.prompt)

    def goes_on_as(self, request: Request) -> bool:
        """Return whether *request* asks for the rest of this answer, as `lm.request.rest` does."""
        size = len(request.prompt)
        known = tuple(max(token, 0) for token in self.tokens[:size])
        return known == request.prompt and size + request.max_tokens == self.most

    def opening(self, source: int = -1, prefix: int = 0) -> NewSequence:
        """Return the NewSequence that tells a stage to open this sequence.

        Its first *prefix* tokens are copied from the slot *source*.
        """
        how, logprobs = self.request.sampling, self.request.logprobs
        return NewSequence(
            self.slot, self.most, how.temperature, how.top_k, how.top_p, how.seed, source, prefix, logprobs
        )

    def ruled(self) -> list[RuledSequence]:
        """Return the rules to send to the stages with the next batch, or [] if there are none."""
        rules = self.request.sampling.rules
        return [RuledSequence(self.slot, rules, tuple(self.tokens[rules.first :]))] if rules else []


number = attrgetter("number")
"""Return the position of a sequence in the order of arrival, which is the order of queues."""


def logprobs_in(row: Row, request: Request) -> Logprobs | None:
    """Return the log-probabilities in *row* that *request* asks for; None if it asks for none."""
    if request.logprobs == NO_LOGPROBS:
        return None
    # All rows of a batch have the same length: truncate this one to what *request* asks for.
    entries = list(zip(*row, strict=True))[: 1 + request.logprobs]
    return Logprobs(entries[0][1], tuple((token, value) for token, value in entries[1:] if token >= 0))


def next_chunks(running: Sequence[RequestSequence], each: int) -> list[tuple[RequestSequence, int]]:
    """Return (sequence, size) of the next prompt chunks of *running*, at most *each* tokens in all.

    A chunk always ends at a multiple of *each* in its sequence, or at the last token. So the split
    of a prompt into chunks does not depend on the other requests.
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
