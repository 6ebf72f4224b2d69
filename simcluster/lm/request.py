"""A request to a language model, and the sampling of its tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from simcluster.runs.answer_rows import Reason

MOST_TOKENS: Final = 10**6
"""Limit on the number of tokens of a prompt or an answer."""


class SamplingRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules for choosing the tokens of an answer that begins at index *begin* of its sequence.

    - *repetition_penalty* divides the logit of each token that occurred before, in the prompt or
      the answer, if the logit is positive; it multiplies a negative one (Keskar et al. 2019,
      section 4.1).
    - *presence_penalty* is subtracted from the logit of each token of the answer so far, and
      *frequency_penalty* once per occurrence of the token there.
    - *bias* has pairs of a token and the number to add to its logit.
    - No token of *ends* is chosen at an index below *until*.
    - The answer follows *grammar*, which `text.grammar` makes; "" is no grammar.
    - *min_p* excludes tokens with less than this share of the likeliest token's probability.
    """

    begin: int
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    ends: tuple[int, ...] = ()
    until: int = 0
    min_p: float = 0.0
    grammar: str = ""

    @property
    def first(self) -> int:
        """The index of the first token that the rules depend on."""
        return self.begin if self.repetition_penalty == 1 else 0


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for sampling tokens; *temperature* 0 takes the likeliest token.

    *top_k* 0 and *top_p* 1 exclude no token. The token at an index depends only on the logits,
    these settings, the index and, if there are *rules*, the tokens before it, never on other
    requests. Without rules, an encoded message with these settings has no entry for *rules*.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    rules: SamplingRules | UnsetType = UNSET


NO_LOGPROBS: Final = -1
"""The value of `Request.logprobs` if no log-probabilities are wanted."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The log-probability *own* of a chosen token, and those of the likeliest tokens.

    *top* has pairs of an id and its log-probability.
    """

    own: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The token ids of a *prompt*, and the limits of its answer.

    The answer has at most *max_tokens* tokens, and ends with the first token of *ends*. *arrival_s*
    counts from the time at which all nodes have loaded the model. If *logprobs* is not NO_LOGPROBS,
    each token comes with its log-probability and those of the *logprobs* likeliest tokens at its
    index.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    ends: frozenset[int] = frozenset()
    arrival_s: float = 0.0
    logprobs: int = NO_LOGPROBS


def seed_of_choice(seed: int, number: int) -> int:
    """Return the seed for choice *number* of a request. Choice 0 has *seed*, the request's own."""
    if number == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}, choice {number}".encode()).digest()[:8], "little") >> 1


def rest(request: Request, tokens: Sequence[int]) -> Request | Reason:
    """Return a request for the rest of the answer to *request*, after the known *tokens*.

    If the answer is complete, return the reason for its end. A token depends only on its index and
    the tokens before it, so any engine gives the same rest. A stage without numerics makes negative
    tokens, which become 0 in the new prompt.
    """
    if tokens and tokens[-1] in request.ends:
        return "stop"
    if len(tokens) >= request.max_tokens:
        return "length"
    prompt = (*request.prompt, *(max(token, 0) for token in tokens))
    return replace(request, prompt=prompt, max_tokens=request.max_tokens - len(tokens))
