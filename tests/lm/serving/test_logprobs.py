"""Log-probabilities in the API: OpenAI's shapes, of the tokens whose text is shown; and what is refused."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from tests.lm.serving.scripted import Engine
from tests.lm.serving.test_api import chat, check_error, events

HALF, EIGHTH = math.log(1 / 2), math.log(1 / 8)


def complete(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/v1/completions", json={"model": "tiny", "prompt": "The capital of France is", **more})


def test_a_chat_has_an_entry_for_each_token_with_its_bytes_and_the_likeliest(client: httpx.Client) -> None:
    (choice,) = chat(client, logprobs=True, top_logprobs=2).json()["choices"]
    assert choice["message"]["content"] == " Paris. €"
    content = choice["logprobs"]["content"]
    assert choice["logprobs"] == {"content": content, "refusal": None}
    assert bytes(one for entry in content for one in entry["bytes"]) == " Paris. €".encode()  # no end token
    assert len(content) == 11
    assert content[1] == {
        "token": "P", "logprob": HALF, "bytes": [80],
        "top_logprobs": [
            {"token": "P", "logprob": HALF, "bytes": [80]},
            {"token": "\0", "logprob": EIGHTH, "bytes": [0]},
        ],
    }  # fmt: skip
    assert content[-1]["token"] == "�"  # the last of three bytes


def test_without_likeliest_ones_the_chosen_token_alone_has_a_number(client: httpx.Client) -> None:
    for more in ({"top_logprobs": 0}, {}):
        (choice,) = chat(client, logprobs=True, **more).json()["choices"]
        assert [one["logprob"] for one in choice["logprobs"]["content"]] == [HALF] * 11
        assert {len(one["top_logprobs"]) for one in choice["logprobs"]["content"]} == {0}
    (choice,) = complete(client, logprobs=0, max_tokens=3).json()["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{" ": HALF}, {"P": HALF}, {"a": HALF}]


def test_a_continued_text_has_lists_by_token_and_where_their_texts_begin(client: httpx.Client) -> None:
    (choice,) = complete(client, logprobs=3).json()["choices"]
    assert choice["text"] == " Paris. €"
    assert choice["logprobs"]["tokens"] == [*" Paris. ", "�", "�", "�"]
    assert choice["logprobs"]["token_logprobs"] == [HALF] * 11
    assert choice["logprobs"]["top_logprobs"][1] == {"P": HALF, "\0": EIGHTH, "\1": EIGHTH}
    assert choice["logprobs"]["text_offset"] == [*range(8), 8, 8, 8]


@pytest.mark.parametrize("kind", ["chat", "text"])
def test_the_parts_of_a_stream_have_what_the_whole_has(kind: str, client: httpx.Client) -> None:
    def ask(**more: Any) -> httpx.Response:
        if kind == "chat":
            return chat(client, logprobs=True, top_logprobs=4, **more)
        return complete(client, logprobs=4, **more)

    whole = ask().json()["choices"][0]["logprobs"]
    parts = [one["choices"][0] for one in events(ask(stream=True))[0]]
    assert parts[-1]["logprobs"] is None  # with the reason of the end
    told = [one["logprobs"] for one in parts if one["logprobs"] is not None]
    for key in ("content",) if kind == "chat" else ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [row for one in told for row in one[key]] == whole[key], key


def test_tokens_of_a_stop_string_have_no_entry_whether_streamed_or_whole(client: httpx.Client, made: Engine) -> None:
    # "one two three" up to "o t"; "o" alone may begin it, and is held back.
    made.let(100)
    body = {"prompt": "step", "stop": ["o t"], "logprobs": 0}
    (choice,) = complete(client, **body).json()["choices"]
    assert (choice["text"], choice["logprobs"]["tokens"]) == ("one tw", [*"one tw"])
    made.let(100)
    parts = [one["choices"][0] for one in events(complete(client, **body, stream=True))[0]]
    assert "".join(one["text"] for one in parts) == "one tw"
    assert [token for one in parts if one["logprobs"] for token in one["logprobs"]["tokens"]] == [*"one tw"]


def test_the_engine_is_asked_for_them_only_if_the_client_asks(client: httpx.Client, made: Engine) -> None:
    chat(client)
    chat(client, logprobs=False)
    complete(client)
    chat(client, logprobs=True)
    chat(client, logprobs=True, top_logprobs=20)
    complete(client, logprobs=5)
    assert [request.logprobs for request in made.seen] == [-1, -1, -1, 0, 20, 5]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs: Input should be less than or equal to 20"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs: Input should be greater than or equal to 0"),
        ({"logprobs": True, "top_logprobs": "3"}, "top_logprobs: Input should be a valid integer"),
        ({"top_logprobs": 3}, "top_logprobs needs logprobs: true"),
        ({"logprobs": False, "top_logprobs": 0}, "top_logprobs needs logprobs: true"),
        ({"logprobs": 3}, "logprobs: Input should be a valid boolean"),
    ],
)
def test_a_chat_that_asks_wrongly_is_refused(body: Any, words: str, client: httpx.Client, made: Engine) -> None:
    check_error(chat(client, **body), 400, "invalid_request_error", words)
    assert made.seen == []


@pytest.mark.parametrize("wrong", [6, -1, True, "1", 10**30])
def test_a_text_that_asks_for_another_number_is_refused(wrong: Any, client: httpx.Client, made: Engine) -> None:
    check_error(complete(client, logprobs=wrong), 400, "invalid_request_error", "logprobs: Input should be")
    assert made.seen == []
