"""OpenAI's own client, unmodified, against the server."""

from __future__ import annotations

import math
from collections.abc import Iterator

import httpx
import pytest

from tests.lm.serving.scripted import Engine, server
from tests.lm.serving.test_api import ASKED

openai = pytest.importorskip("openai")


@pytest.fixture
def client(made: Engine) -> Iterator[openai.OpenAI]:  # type: ignore[name-defined]
    token = "secret"
    with server(made.front, token) as running:
        base = f"{running.url}/v1"
        with openai.OpenAI(base_url=base, api_key=token, timeout=300.0, max_retries=0) as found:
            yield found


def test_a_chat_is_answered_whole_and_streamed_with_usage(client: openai.OpenAI) -> None:  # type: ignore[name-defined]
    whole = client.chat.completions.create(model="tiny", messages=ASKED)
    assert whole.choices[0].message.content == " Paris. €"
    assert (whole.choices[0].finish_reason, whole.usage.total_tokens) == ("stop", 43)
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=ASKED, stream=True, stream_options={"include_usage": True}, max_tokens=7
        )
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == " Paris."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 7


def test_a_text_is_continued_and_models_are_listed(client: openai.OpenAI) -> None:  # type: ignore[name-defined]
    assert client.completions.create(model="tiny", prompt="The capital is").choices[0].text == " Paris. €"
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_log_probabilities_become_the_clients_objects(client: openai.OpenAI) -> None:  # type: ignore[name-defined]
    ask = {"model": "tiny", "messages": ASKED, "logprobs": True, "top_logprobs": 2}
    entries = client.chat.completions.create(**ask).choices[0].logprobs.content
    assert [entry.token for entry in entries[:3]] == [" ", "P", "a"]
    assert entries[1].bytes == [80]
    assert [round(math.exp(one.logprob), 6) for one in entries[1].top_logprobs] == [0.5, 0.125]
    chunks = client.chat.completions.create(**ask, stream=True)
    told = [chunk.choices[0].logprobs for chunk in chunks]
    assert [entry for one in told if one for entry in one.content] == entries
    found = client.completions.create(model="tiny", prompt="The capital is", logprobs=2).choices[0].logprobs
    assert found.tokens[:3] == [" ", "P", "a"]
    assert found.text_offset[:3] == [0, 1, 2]
    assert [round(math.exp(one), 6) for one in found.token_logprobs] == [0.5] * 11
    assert set(found.top_logprobs[1]) == {"P", "\0"}
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        client.chat.completions.create(**ask | {"top_logprobs": 21})


def test_what_is_not_supported_is_asked_for_once(made: Engine) -> None:
    """The client's default is to send a request again after a status of 500 or more."""
    asked: list[str] = []
    with server(made.front) as running:
        http = httpx.Client(event_hooks={"request": [lambda request: asked.append(request.url.path)]})
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="x", http_client=http) as client:
            with pytest.raises(openai.BadRequestError, match="web_search_options is not supported"):
                client.chat.completions.create(model="tiny", messages=ASKED, web_search_options={})
            with pytest.raises(openai.NotFoundError, match="no POST /v1/responses"):
                client.responses.create(model="tiny", input="x")
    assert asked == ["/v1/chat/completions", "/v1/responses"]


def test_errors_become_the_clients_own(client: openai.OpenAI, made: Engine) -> None:  # type: ignore[name-defined]
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        client.chat.completions.create(model="gpt-4", messages=ASKED)
    with pytest.raises(openai.BadRequestError, match="max_tokens is 0"):
        client.chat.completions.create(model="tiny", messages=ASKED, max_tokens=0)
    with pytest.raises(openai.BadRequestError, match="audio is not supported") as refused:
        client.chat.completions.create(model="tiny", messages=ASKED, audio={"voice": "ash", "format": "wav"})
    assert (refused.value.param, refused.value.code) == ("audio", "not_supported")
    with pytest.raises(openai.NotFoundError, match="no POST /v1/embeddings; this server has /v1/chat/completions, "):
        client.embeddings.create(model="tiny", input="x")
    assert made.seen == []
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    made.let(3)
    stream = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "fail"}], stream=True
    )  # fmt: skip
    text = next(stream).choices[0].delta.content
    made.let(4)
    with pytest.raises(openai.APIError, match="mini2 is lost"):
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text == "one two"
