"""Functions that a model may call: in the prompt, in the grammar, and in the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from simcluster.lm.serving.web.tools import call_in
from tests.lm.serving.scripted import PATIENT, Engine, Script, engine, server
from tests.lm.serving.test_api import events

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a town.",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
CALL = '{"name": "weather", "arguments": {"town": "Köln"}}'


def script(prompt: str) -> Script:
    last = prompt.strip().splitlines()[-1]
    if "weather" in last:
        return Script(CALL)
    if "cut" in last:
        return Script(CALL[:-5], "length")
    return Script("It is {noon}.")


@pytest.fixture
def made() -> Iterator[Engine]:
    with engine(script) as found:
        yield found


@pytest.fixture
def client(made: Engine) -> Iterator[httpx.Client]:
    with server(made.front) as running, httpx.Client(base_url=running.url, timeout=PATIENT) as found:
        yield found


def ask(client: httpx.Client, text: str, **more: Any) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    return client.post("/v1/chat/completions", json={"model": "tiny", "messages": messages, "tools": TOOLS, **more})


def grammar_of(made: Engine) -> tuple[bool, dict[str, Any]]:
    """Return whether the last answer may be a text, and the schema of its calls."""
    rules = made.seen[-1].sampling.rules
    assert rules
    return rules.grammar.startswith("text or "), json.loads(rules.grammar.removeprefix("text or "))


def test_a_call_has_openais_shape_and_no_text(client: httpx.Client) -> None:
    (choice,) = ask(client, "weather").json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"town": "Köln"}


def test_a_streamed_call_comes_in_one_piece(client: httpx.Client) -> None:
    found, _ = events(ask(client, "weather", stream=True))
    deltas = [one["choices"][0]["delta"] for one in found]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert not any(one.get("content") for one in deltas)
    (calls,) = [one["tool_calls"] for one in deltas if "tool_calls" in one]
    assert (calls[0]["index"], calls[0]["function"]["name"]) == (0, "weather")
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_text_and_a_call_that_is_cut_off_stay_text(client: httpx.Client) -> None:
    for text, expected, reason in (("hello", "It is {noon}.", "stop"), ("cut", CALL[:-5], "length")):
        (choice,) = ask(client, text).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (expected, reason)
        found, _ = events(ask(client, text, stream=True))
        assert "".join(one["choices"][0]["delta"].get("content", "") for one in found) == expected


def test_lists_nested_beyond_what_json_reads_are_no_call() -> None:
    assert call_in("[" * 100_000) is None


def test_the_functions_are_in_the_prompt_and_in_the_grammar(client: httpx.Client, made: Engine) -> None:
    ask(client, "hello")
    prompt = bytes(made.seen[-1].prompt).decode()
    assert prompt.startswith("system: To call a function")
    assert "The weather of a town." in prompt
    may_be_text, schema = grammar_of(made)
    assert may_be_text
    assert [one["properties"]["name"] for one in schema["anyOf"]] == [{"const": "weather"}, {"const": "now"}]
    assert schema["anyOf"][0]["properties"]["arguments"] == TOOLS[0]["function"]["parameters"]  # type: ignore[index]


def test_the_choice_of_a_tool_decides_what_an_answer_may_be(client: httpx.Client, made: Engine) -> None:
    ask(client, "x", tool_choice="required")
    may_be_text, schema = grammar_of(made)
    assert (may_be_text, len(schema["anyOf"])) == (False, 2)
    ask(client, "x", tool_choice={"type": "function", "function": {"name": "now"}})
    may_be_text, schema = grammar_of(made)
    assert (may_be_text, [one["properties"]["name"]["const"] for one in schema["anyOf"]]) == (False, ["now"])
    assert ask(client, "weather", tool_choice="none").json()["choices"][0]["message"]["content"] == CALL
    assert not made.seen[-1].sampling.rules
    assert b"Functions:" not in bytes(made.seen[-1].prompt)


def test_calls_and_results_of_a_conversation_are_its_text(client: httpx.Client, made: Engine) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Köln"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    client.post("/v1/chat/completions", json={"model": "tiny", "messages": messages, "tools": TOOLS})
    lines = bytes(made.seen[-1].prompt).decode().splitlines()
    assert lines[0] == "system: Be brief."
    assert lines[-3:] == ["user: How is it?", f"assistant: {CALL}", "user: rain"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "search"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "strange"}}}]}, "tools"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "none"}}}, "tool_choice"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "tools"),
    ],
)
def test_wrong_tools_are_refused(client: httpx.Client, made: Engine, more: dict[str, Any], param: str) -> None:
    answer = ask(client, "x", **more)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert made.seen == []


def test_the_official_client_gets_its_objects(made: Engine) -> None:
    openai = pytest.importorskip("openai")
    with server(made.front) as running, openai.OpenAI(base_url=f"{running.url}/v1", api_key="x") as client:
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "weather"}], "tools": TOOLS}
        (call,) = client.chat.completions.create(**asked).choices[0].message.tool_calls
        assert json.loads(call.function.arguments) == {"town": "Köln"}
        with client.chat.completions.stream(**asked) as stream:
            (call,) = stream.get_final_completion().choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"town": "Köln"})
