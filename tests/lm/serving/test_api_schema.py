"""Bodies by chance: each is a request, or gets an error in the API's shape."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lm.serving.web.api_schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
    parsed,
)
from simcluster.lm.serving.web.errors import MOST_SHOWN, ApiError

KEYS = ("model", "messages", "prompt", "max_tokens", "temperature", "top_k", "stop", "stream", "stream_options", "n",
        "tools", "role", "content", "type", "text", "seed", "tokens", "temprature", "logprobs",
        "top_logprobs", "n", "echo", "logit_bias", "min_p", "stop_token_ids", "best_of", "user")  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(("tiny", "user")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES)
BODIES = st.binary(max_size=40) | OBJECTS.map(lambda one: json.dumps(one).encode())


def outcome(kind: type[Any], body: bytes) -> Any:
    """Return the request, or the error that the client gets."""
    try:
        ask = parsed(kind, body)
        if isinstance(ask, ChatRequest):
            return [message.to_dict() for message in ask.messages]
        return ask.prompts if isinstance(ask, CompletionRequest) else ask
    except ApiError as error:
        return error


@pytest.mark.slow
@given(BODIES, st.sampled_from((ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)))
def test_a_body_is_read_or_refused_in_few_words(body: bytes, kind: type[Any]) -> None:
    found = outcome(kind, body)
    if isinstance(found, ApiError):
        assert found.status == 400
        assert len(found.to_dict()["error"]["message"]) <= MOST_SHOWN


def test_a_misspelt_key_is_refused_whatever_its_value() -> None:
    for value in ("null", "1", '"x"'):
        found = outcome(CompletionRequest, f'{{"model": "tiny", "prompt": "x", "temprature": {value}}}'.encode())
        assert "did you mean 'temperature'?" in str(found)
