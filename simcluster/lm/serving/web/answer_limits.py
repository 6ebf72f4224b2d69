"""The limits and the sampling of an answer, as a request and its model give them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from simcluster.lm.request import Sampling, SamplingRules
from simcluster.lm.serving.web.api_schema import GenerationRequest
from simcluster.lm.serving.web.errors import ApiError


def most_tokens(limit: tuple[str, int | None], prompt: tuple[str, int], context: int, default: int | None) -> int:
    """Return the limit on the tokens of the answer to a prompt.

    *limit* is (key, requested limit or None), *prompt* is (key, number of tokens). Without a
    requested limit, return *default*, or what the prompt leaves of *context* if that is less or
    *default* is None. Raise ApiError if the prompt is empty, if the requested limit is below 1, or
    if prompt and answer do not fit in *context*.
    """
    key, asked = limit
    prompt_key, tokens = prompt
    if tokens == 0:
        raise ApiError(400, "the prompt has no token; expected at least one", param=prompt_key)
    room = context - tokens
    if room < 1:
        too_long = f"the prompt has {tokens} tokens; the context has {context}, of which the answer needs at least 1"
        raise ApiError(400, too_long, "context_length_exceeded", prompt_key)
    if asked is None:
        return room if default is None else min(default, room)
    if asked < 1:
        raise ApiError(400, f"{key} is {asked}; expected at least 1", param=key)
    if asked > room:
        both = f"{tokens} tokens of the prompt and {asked} of the answer, together {tokens + asked}"
        raise ApiError(400, f"{both}; the context has {context}", "context_length_exceeded", key)
    return asked


def check_ids(tokens: Collection[int], vocabulary: int, key: str) -> None:
    """Raise ApiError, for *key*, unless all *tokens* are ids below *vocabulary*."""
    if wrong := next((token for token in tokens if not 0 <= token < vocabulary), None):
        raise ApiError(400, f"{key}: no token {wrong}; expected ids from 0 to {vocabulary - 1}", param=key)


def ends_of(ask: GenerationRequest, own: frozenset[int], vocabulary: int) -> frozenset[int]:
    """Return the tokens that end an answer to *ask*.

    These are its stop_token_ids and, unless it has ignore_eos, the model's *own*. Raise ApiError if
    one is not in the vocabulary.
    """
    more = ask.stop_token_ids or []
    check_ids(more, vocabulary, "stop_token_ids")
    return frozenset(more) | (frozenset() if ask.ignore_eos else own)


def sampling_of(
    ask: GenerationRequest, begin: int, most: int, ends: frozenset[int], vocabulary: int, grammar: str
) -> Sampling:
    """Return the sampling of an answer to *ask*, without its seed.

    The answer begins after *begin* tokens, has at most *most*, and ends with one of *ends*. It
    follows *grammar*, unless that is "". Raise ApiError if min_tokens or logit_bias is invalid.
    """
    bias = _bias_of(ask, vocabulary)
    least = ask.min_tokens or 0
    if least > most:
        raise ApiError(400, f"min_tokens is {least}; expected at most {most}, the limit", param="min_tokens")
    if least and len(ends) >= vocabulary:
        raise ApiError(400, "min_tokens: every token of the vocabulary ends the answer", param="min_tokens")
    factors = (one for one in (ask.repetition_penalty, ask.repeat_penalty) if one is not None)
    rules = SamplingRules(
        begin=begin,
        repetition_penalty=next(factors, 1.0),
        presence_penalty=ask.presence_penalty or 0.0,
        frequency_penalty=ask.frequency_penalty or 0.0,
        bias=bias,
        ends=tuple(sorted(ends)) if least else (),
        until=begin + least if least else 0,
        min_p=ask.min_p or 0.0,
        grammar=grammar,
    )
    plain = Sampling(
        temperature=1.0 if ask.temperature is None else ask.temperature,
        top_k=max(0, ask.top_k or 0),
        top_p=1.0 if ask.top_p is None else ask.top_p,
    )
    return plain if rules == SamplingRules(begin) else replace(plain, rules=rules)


def _bias_of(ask: GenerationRequest, vocabulary: int) -> tuple[tuple[int, float], ...]:
    try:
        found = {int(token): number for token, number in (ask.logit_bias or {}).items()}
    except ValueError:
        raise ApiError(400, "logit_bias: expected token ids as keys", param="logit_bias") from None
    check_ids(found, vocabulary, "logit_bias")
    return tuple(sorted(found.items()))
