"""A request on its way through an engine, and the tokens that come of it."""

from __future__ import annotations

from dataclasses import dataclass

from simcluster.inference.request import Reason, Request


@dataclass(slots=True, eq=False)
class Queued:
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
        """Whether *request* is the rest of this one: see simcluster.inference.request.rest."""
        size, whole = len(request.prompt), len(self.request.prompt) + self.request.max_tokens
        known = tuple(max(token, 0) for token in self.tokens[:size])
        return known == request.prompt and size + request.max_tokens == whole


@dataclass(frozen=True, slots=True)
class Answer:
    """The next *token* of a request, and why the answer ends with it, if it does."""

    request: str
    token: int
    reason: Reason | None


def number(sequence: Queued) -> int:
    """Return the place of *sequence* in the order of arrival."""
    return sequence.number
