"""A request to a language model, and how its tokens are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

MOST_TOKENS: Final = 10**6
"""Limit on the tokens of a prompt or an answer."""

Reason = Literal["stop", "length", "cancelled", "error"]
"""Why an answer ended: with an end token, at *max_tokens* or the context, on demand, or because a node was lost."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen. *temperature* 0 takes the likeliest; *top_k* 0 and *top_p* 1 leave none out.

    The token at a place depends on the logits, these numbers and the place alone, never on other requests.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


NO_LOGPROBS: Final = -1
"""No log-probabilities are asked for."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The log-probability of a chosen token, *own*, and the ids and log-probabilities of the likeliest in its place."""

    own: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The token ids of a prompt, and the answer asked for: at most *max_tokens*, up to one of *ends*.

    *arrival_s* counts from when the model is loaded on all nodes. Each token comes with its log-probability and those
    of the *logprobs* likeliest in its place; with none if that is NO_LOGPROBS.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    ends: frozenset[int] = frozenset()
    arrival_s: float = 0.0
    logprobs: int = NO_LOGPROBS


def rest(request: Request, tokens: Sequence[int]) -> Request | Reason:
    """Return what is left of *request* after the first *tokens* of its answer: a request whose answer is the others, or
    the reason for which none follow.

    A token depends on its place and those before it, so the rest is the same on any engine. Unknown tokens count as 0.
    """
    if tokens and tokens[-1] in request.ends:
        return "stop"
    if len(tokens) >= request.max_tokens:
        return "length"
    prompt = (*request.prompt, *(max(token, 0) for token in tokens))
    return replace(request, prompt=prompt, max_tokens=request.max_tokens - len(tokens))
