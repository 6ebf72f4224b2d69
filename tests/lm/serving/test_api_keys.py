"""The keys of requests: taken, ignored with a header, or refused with their name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from simcluster.lm.request import SamplingRules, seed_of_choice
from simcluster.lm.serving.web.api_schema import MOST_CHOICES, ChatRequest, CompletionRequest, parsed
from simcluster.lm.serving.web.errors import ApiError
from simcluster.lm.serving.web.known_keys import IGNORED, REFUSED
from tests.lm.serving.scripted import CONTEXT, END, Engine, engine, script, server
from tests.lm.serving.test_api import ASKED, chat, events


def complete(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/v1/completions", json={"model": "tiny", "prompt": "The capital is", **more})


def refusal(kind: type[Any], **more: Any) -> ApiError:
    body = {"model": "tiny", "prompt": "x"} if kind is CompletionRequest else {"model": "tiny", "messages": ASKED}
    with pytest.raises(ApiError) as raised:
        parsed(kind, json.dumps(body | more).encode())
    return raised.value


def test_no_key_has_two_meanings() -> None:
    fields = {*ChatRequest.model_fields, *CompletionRequest.model_fields}
    assert not fields & IGNORED
    assert not fields & REFUSED.keys()
    assert not IGNORED & REFUSED.keys()


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "king", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * CONTEXT}]}, "messages"),
        ({"model": "gpt-4"}, "model"),
        ({"model": None}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
        ({"n_predict": CONTEXT}, "n_predict"),
        ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": ["a", 1]}, "stop"),
        ({"stop_token_ids": [END + 1]}, "stop_token_ids"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"n": MOST_CHOICES + 1}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": {"type": "nonsense"}}, "response_format.type"),
        ({"response_format": {"type": "json_object", "schema": {"type": "strange"}}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "response_format"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_an_error_about_a_key_names_it(client: httpx.Client, made: Engine, more: dict[str, Any], param: str) -> None:
    answer = chat(client, **more)
    assert answer.status_code == (404 if more.get("model") else 400)
    assert answer.json()["error"]["param"] == param
    assert made.seen == []


def test_an_error_about_a_completion_names_its_key(client: httpx.Client) -> None:
    for more, param in (
        ({"prompt": ""}, "prompt"), ({"prompt": [END + 1]}, "prompt"), ({"prompt": "x" * CONTEXT}, "prompt"),
        ({"prompt": ["x"] * 20, "n": 2}, "prompt"), ({"echo": True, "logprobs": 1}, "echo"),
        ({"suffix": "x"}, "suffix"),
    ):  # fmt: skip
        assert complete(client, **more).json()["error"]["param"] == param


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_a_refused_key_is_refused_unless_its_value_asks_for_nothing(key: str) -> None:
    error = refusal(CompletionRequest, **{key: {"strange": [1]}})
    assert (error.status, error.param, error.code) == (400, key, "not_supported")
    for value in (None, *REFUSED[key]):
        parsed(CompletionRequest, json.dumps({"model": "tiny", "prompt": "x", key: value}).encode())


def test_keys_without_effect_are_named_in_a_header(client: httpx.Client) -> None:
    more = {"user": "me", "cache_prompt": True, "chat_template_kwargs": {}, "num_ctx": 4096, "mirostat": None}
    expected = "cache_prompt, chat_template_kwargs, num_ctx, user"
    for streams in (False, True):
        assert chat(client, stream=streams, **more).headers["x-simcluster-ignored"] == expected
    assert "x-simcluster-ignored" not in chat(client).headers


def test_a_misspelt_key_gets_the_right_suggestion_and_a_strange_one_none() -> None:
    for key, meant in (
        ("temprature", "temperature"), ("max_token", "max_tokens"), ("stop_token_id", "stop_token_ids"),
        ("top-p", "top_p"), ("logitbias", "logit_bias"), ("message", "messages"), ("frequency_penality",
        "frequency_penalty"), ("respons_format", "response_format"),
    ):  # fmt: skip
        assert str(refusal(ChatRequest, **{key: 1})) == f"unknown key {key!r}; did you mean {meant!r}?"
    for key in ("foo", "temp", "banana", "x" * 500):
        assert str(refusal(ChatRequest, **{key: 1})) == f"unknown key {key[:100]!r}"


def test_sampling_of_vllm_and_llama_cpp_reaches_the_engine(client: httpx.Client, made: Engine) -> None:
    chat(client, presence_penalty=0.5, frequency_penalty=-0.25, min_p=0.1, logit_bias={"97": -5, "7": 2.5}, seed=3)
    chat(client, repeat_penalty=1.5, min_tokens=4, stop_token_ids=[32], n_predict=9, seed=-1)
    chat(client, ignore_eos=True, stop_token_ids=[32], num_predict=-1, repetition_penalty=1.25)
    chat(client, presence_penalty=0, frequency_penalty=0.0, repetition_penalty=1, min_p=0, logit_bias={}, min_tokens=0)
    first, second, third, plain = made.seen
    begin = 31
    assert first.sampling.rules == SamplingRules(
        begin, presence_penalty=0.5, frequency_penalty=-0.25, bias=((7, 2.5), (97, -5)), min_p=0.1
    )
    assert second.sampling.rules == SamplingRules(begin, 1.5, ends=(32, END), until=begin + 4)
    assert (second.max_tokens, second.ends) == (9, frozenset([32, END]))
    assert second.sampling.seed >= 0
    assert third.sampling.rules == SamplingRules(begin, 1.25)
    assert (third.max_tokens, third.ends) == (CONTEXT - begin, frozenset([32]))
    assert not plain.sampling.rules


def test_the_schema_of_an_answer_reaches_the_engine_as_a_grammar(client: httpx.Client, made: Engine) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for form in (
        {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}},
        {"type": "json_object", "schema": schema},
        {"type": "json_object"},
        {"type": "text"},
    ):
        assert chat(client, response_format=form).status_code == 200
    found = [request.sampling.rules for request in made.seen]
    assert [json.loads(one.grammar) for one in found[:3]] == [schema, schema, {"type": "object"}]
    assert not found[3]


LANGCHAIN = {"model": "tiny", "stream": False, "messages": ASKED}
LANGCHAIN_TEXT = {
    "model": "tiny", "prompt": ["x"], "frequency_penalty": 0, "logprobs": None, "max_tokens": 256, "n": 1,
    "presence_penalty": 0, "seed": None, "temperature": 0.7, "top_p": 1,
}  # fmt: skip
LLM = {"model": "tiny", "stream": True, "messages": ASKED, "stream_options": {"include_usage": True}}
LLM_OPTIONS = LLM | {
    "temperature": 0.5, "max_tokens": 4, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": 0.2, "stop": "zz",
    "logit_bias": {"7": 2}, "seed": 3, "response_format": {"type": "json_object"},
}  # fmt: skip


@pytest.mark.parametrize("body", [LANGCHAIN, LANGCHAIN_TEXT, LLM, LLM_OPTIONS])
def test_what_langchain_and_llm_send_by_default_is_answered(client: httpx.Client, body: dict[str, Any]) -> None:
    """Bodies of langchain-openai 1.7 (ChatOpenAI, OpenAI) and llm 0.36, without options and with all of them."""
    answer = client.post("/v1/chat/completions" if "messages" in body else "/v1/completions", json=body)
    assert answer.status_code == 200
    assert "x-simcluster-ignored" not in answer.headers


def test_choices_are_requests_with_seeds_of_their_own(client: httpx.Client, made: Engine) -> None:
    answer = chat(client, n=3, seed=7, best_of=3)
    found = answer.json()
    assert [one["index"] for one in found["choices"]] == [0, 1, 2]
    assert {one["message"]["content"] for one in found["choices"]} == {" Paris. €"}
    # The prompt counts once, and each answer has 11 bytes and an end.
    assert found["usage"] == {"prompt_tokens": 31, "completion_tokens": 36, "total_tokens": 67}
    assert [request.sampling.seed for request in made.seen] == [seed_of_choice(7, number) for number in range(3)]
    assert len({request.id for request in made.seen}) == 3
    timings = json.loads(answer.headers["x-simcluster-timings"])
    assert [one["seed"] for one in timings["choices"]] == [request.sampling.seed for request in made.seen]


def test_a_stream_of_choices_has_a_role_and_an_end_for_each(client: httpx.Client) -> None:
    found, comments = events(chat(client, n=2, stream=True, stream_options={"include_usage": True}))
    *parts, usage = found
    for number in range(2):
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == number]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in own) == " Paris. €"
        assert [one["finish_reason"] for one in own].count("stop") == 1
        assert own[-1]["finish_reason"] == "stop"
    assert usage["usage"]["completion_tokens"] == 24
    assert len(json.loads(comments[-1].removeprefix(": timings "))["choices"]) == 2


def test_prompts_are_answered_in_their_order_and_echoed(client: httpx.Client) -> None:
    found = complete(client, prompt=["long", "The capital"], n=2, max_tokens=7, echo=True).json()
    assert [one["text"] for one in found["choices"]] == ["longxxxxxxx"] * 2 + ["The capital Paris."] * 2
    assert found["usage"] == {"prompt_tokens": 15, "completion_tokens": 28, "total_tokens": 43}
    streamed, _ = events(complete(client, prompt=list(b"long"), echo=True, max_tokens=3, stream=True))
    assert "".join(one["choices"][0]["text"] for one in streamed) == "longxxx"


def test_a_failed_choice_ends_the_others(client: httpx.Client, made: Engine) -> None:
    body = {"model": "tiny", "prompt": ["step", "fail at once"]}
    answer = client.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable_error")
    made.wait_for(lambda: made.cancelled)
    assert made.front.open_requests == 0


def test_choices_are_taken_together_or_not_at_all() -> None:
    with engine(script, most=3) as made, server(made.front) as running, httpx.Client(base_url=running.url) as client:
        made.let(1)
        body = {"model": "tiny", "prompt": "step", "n": 2, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            pieces = answer.iter_text()  # which would close the connection if it were freed
            next(pieces)
            assert complete(client, n=2).status_code == 503
            assert complete(client).status_code == 200
        assert len(made.seen) == 3
        too_many = complete(client, n=4)
        assert (too_many.status_code, too_many.json()["error"]["param"]) == (400, "n")
