"""The server's answers in OpenAI's shape, from a scripted engine over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import suppress
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from simcluster_backends.sockets.coordinator import rate_limits

from simcluster.lm.digest import ids_sha256
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.request_source import EngineLoad
from simcluster.lm.serving.desk.request_broker import RequestBroker
from simcluster.lm.serving.setup import PlacementLayout, PlacementState
from simcluster.lm.serving.web.app import make_app
from simcluster.lm.serving.web.guard import BODY_LIMIT_BYTES
from simcluster.lm.serving.web.load_stream import MOST_PAGES
from tests.lm.serving.scripted import (
    CONTEXT,
    END,
    PATIENT,
    Bytes,
    BytesDecoder,
    Engine,
    Script,
    a_site,
    engine,
    script,
    server,
)

ASKED = [{"role": "user", "content": "The capital of France is"}]


def chat(client: httpx.Client, **more: Any) -> httpx.Response:
    return client.post("/v1/chat/completions", json={"model": "tiny", "messages": ASKED, **more})


def events(answer: httpx.Response) -> tuple[list[Any], list[str]]:
    """The data of a stream, and its comments."""
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data.pop() == "[DONE]"
    return [json.loads(one) for one in data], [line for line in lines if line.startswith(":")]


def check_error(answer: httpx.Response, status: int, kind: str, words: str = "") -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert list(answer.json()) == ["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == kind
    assert words in error["message"]


def test_a_whole_answer_has_openais_fields_and_counts_its_tokens(client: httpx.Client) -> None:
    answer = chat(client)
    found = answer.json()
    assert found["object"] == "chat.completion"
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": " Paris. €"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    # "user: The capital of France is\n" has 31 bytes; " Paris. €" has 11, and the end is one token.
    assert found["usage"] == {"prompt_tokens": 31, "completion_tokens": 12, "total_tokens": 43}
    timings = json.loads(answer.headers["x-simcluster-timings"])
    assert timings["token_ids_sha256"] == ids_sha256([*" Paris. €".encode(), END])
    assert timings["predicted"] == {"ttft_s": 0.5, "tokens_per_s": 20.0}


def test_a_stream_begins_with_the_role_has_no_empty_finish_and_ends_with_usage_and_done(client: httpx.Client) -> None:
    found, comments = events(chat(client, stream=True, stream_options={"include_usage": True}))
    first, *parts, last, usage = found
    assert first["choices"][0] == {
        "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None
    }  # fmt: skip
    assert "".join(part["choices"][0]["delta"]["content"] for part in parts) == " Paris. €"
    assert {part["choices"][0]["finish_reason"] for part in parts} == {None}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 31, "completion_tokens": 12, "total_tokens": 43}
    assert {one["object"] for one in found} == {"chat.completion.chunk"}
    assert len({one["id"] for one in found}) == 1
    assert "tool" not in json.dumps(found)
    timings = json.loads(comments[-1].removeprefix(": timings "))
    assert timings["token_ids_sha256"] == ids_sha256([*" Paris. €".encode(), END])
    assert timings["ttft_s"] > 0


def test_completions_take_text_or_ids_and_16_tokens_by_default(client: httpx.Client) -> None:
    for prompt in ("long", list(b"long"), ["long"], [list(b"long")]):
        found = client.post("/v1/completions", json={"model": "tiny", "prompt": prompt}).json()
        assert found["object"] == "text_completion"
        assert found["choices"] == [{"index": 0, "text": "x" * 16, "logprobs": None, "finish_reason": "length"}]
    streamed, _ = events(client.post("/v1/completions", json={"model": "tiny", "prompt": "long", "stream": True}))
    assert "".join(one["choices"][0]["text"] for one in streamed) == "x" * 16


def test_the_sampling_reaches_the_engine_and_a_request_without_a_seed_gets_another_one(
    client: httpx.Client, made: Engine
) -> None:
    chat(client, temperature=0.5, top_p=0.9, top_k=40, seed=7, max_tokens=3)
    chat(client)
    chat(client, max_completion_tokens=5)
    first, second, third = made.seen
    assert (first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (0.5, 0.9, 40)
    assert (first.sampling.seed, first.max_tokens, first.ends) == (7, 3, frozenset([END]))
    assert (second.sampling.temperature, second.sampling.top_p, second.sampling.top_k) == (1.0, 1.0, 0)
    assert second.sampling.seed != third.sampling.seed
    assert (second.max_tokens, third.max_tokens) == (CONTEXT - 31, 5)


def test_no_token_ends_an_answer_that_ignores_them(client: httpx.Client, made: Engine) -> None:
    chat(client, ignore_eos=True, max_tokens=3)
    assert made.seen[0].ends == frozenset()


def test_a_stop_string_over_two_tokens_ends_the_answer_and_the_engine_is_told(
    client: httpx.Client, made: Engine
) -> None:
    made.let(100)
    found = chat(client, messages=[{"role": "user", "content": "step"}], stop=["o t"]).json()
    assert found["choices"][0]["message"]["content"] == "one tw"
    assert found["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        (b"{", 400, "invalid_request_error", "JSON"),
        (b"\xff", 400, "invalid_request_error", ""),
        (b"[" * 100_000, 400, "invalid_request_error", ""),
        (b"{}", 400, "invalid_request_error", "messages: Field required"),
        ({"model": "gpt-4"}, 404, "not_found_error", "no model 'gpt-4'; this server has 'tiny'"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "invalid_request_error", "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "invalid_request_error", "messages[0].role"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens is 0; expected at least 1"),
        ({"max_tokens": CONTEXT}, 400, "invalid_request_error", f"31 tokens of the prompt and {CONTEXT} of the answer"),
        (
            {"messages": [{"role": "user", "content": "x" * CONTEXT}]},
            400,
            "invalid_request_error",
            f"{CONTEXT + 7}",
        ),
        (b"null", 400, "invalid_request_error", ""),
        (b'{"max_tokens": 1' + b"0" * 5000 + b"}", 400, "invalid_request_error", ""),
        ({"max_tokens": 10**30}, 400, "invalid_request_error", "together"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, "invalid_request_error", ""),
        ({"temperature": -1}, 400, "invalid_request_error", "temperature"),
        ({"temperature": "hot"}, 400, "invalid_request_error", "temperature"),
        ({"top_p": 0}, 400, "invalid_request_error", "top_p"),
        ({"seed": 2**70}, 400, "invalid_request_error", "seed"),
        ({"temprature": 1}, 400, "invalid_request_error", "did you mean 'temperature'?"),
        ({"tools": [{"type": "function"}]}, 400, "invalid_request_error", "tools.0.function: Field required"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "invalid_request_error",
            "image_url",
        ),
    ],
)
def test_a_wrong_request_gets_its_status_and_a_sentence(
    client: httpx.Client, made: Engine, body: Any, status: int, kind: str, words: str
) -> None:
    if isinstance(body, dict):
        body = json.dumps({"model": "tiny", "messages": ASKED} | body).encode()
    answer = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    check_error(answer, status, kind, words)
    assert made.seen == []


def test_what_asks_for_nothing_special_is_taken(client: httpx.Client) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "The capital of France is"}]}]
    more = {"n": 1, "logprobs": False, "tools": None, "user": "me", "presence_penalty": 0.0, "tool_choice": "none"}
    assert chat(client, **more).status_code == 200
    assert chat(client, messages=parts).json()["usage"]["prompt_tokens"] == 31


def test_clients_can_tell_refusals_apart_by_their_codes(client: httpx.Client) -> None:
    for more, code in (
        ({"model": "gpt-4"}, "model_not_found"),
        ({"prompt": "x" * CONTEXT}, "context_length_exceeded"),
        ({"max_tokens": CONTEXT}, "context_length_exceeded"),
        ({"temprature": 1}, "unknown_parameter"),
        ({"suffix": "x"}, "not_supported"),
    ):
        answer = client.post("/v1/completions", json={"model": "tiny", "prompt": "x"} | more)
        assert answer.json()["error"]["code"] == code


def test_an_empty_prompt_a_long_body_and_an_unknown_path_get_errors_of_the_same_shape(client: httpx.Client) -> None:
    for prompt in ("", [], [""], [[]]):
        empty = client.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
        check_error(empty, 400, "invalid_request_error", "the prompt has no token")
    check_error(
        client.post("/v1/completions", json={"model": "tiny", "prompt": [END + 1]}), 400, "invalid_request_error",
        f"no token {END + 1}; expected ids from 0 to {END}",
    )  # fmt: skip
    check_error(chat(client, user="x" * BODY_LIMIT_BYTES), 413, "invalid_request_error", str(BODY_LIMIT_BYTES))
    check_error(client.get("/v1/nothing"), 404, "not_found_error", "no GET /v1/nothing")
    check_error(client.get("/v1/chat/completions"), 405, "invalid_request_error")


def test_a_failure_before_the_first_token_has_a_status_and_one_in_a_stream_is_a_chunk_that_names_the_node(
    client: httpx.Client, made: Engine
) -> None:
    at_once = [{"role": "user", "content": "fail at once"}]
    for streams in (False, True):
        check_error(chat(client, messages=at_once, stream=streams), 503, "unavailable_error", "mini2 is lost")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "fail"}], "stream": True}
    made.let(3)
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        text = next(pieces := answer.iter_text())
        made.let(4)
        found, _ = events(httpx.Response(200, headers=answer.headers, text=text + "".join(pieces)))
    assert "".join(one["choices"][0]["delta"]["content"] for one in found[:-1]) == "one two"
    assert found[-1]["error"]["type"] == "unavailable_error"
    assert "mini2 is lost" in found[-1]["error"]["message"]


def test_a_client_that_leaves_frees_its_place_at_once(client: httpx.Client, made: Engine) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "step"}], "stream": True}
    made.let(1)  # a stream begins with its first token
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert "assistant" in next(answer.iter_text())
    made.wait_for(lambda: made.cancelled)
    assert made.cancelled == [made.seen[0].id]
    assert made.front.open_requests == 0
    assert chat(client).status_code == 200


def test_a_client_that_leaves_before_the_answer_began_frees_its_place_too(client: httpx.Client, made: Engine) -> None:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "step"}]}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as hasty:
        hasty.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        made.wait_for(lambda: made.seen)
    made.wait_for(lambda: made.cancelled)
    assert made.front.open_requests == 0


def test_a_full_queue_refuses_with_503_and_takes_requests_again_when_there_is_room() -> None:
    with (
        engine(script, most=1) as made,
        server(made.front) as running,
        httpx.Client(base_url=running.url, timeout=PATIENT) as client,
    ):
        made.let(1)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "step"}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body):
            made.wait_for(lambda: made.seen)
            refused = chat(client)
            check_error(refused, 503, "unavailable_error", "1 requests are open, and at most 1 are taken")
            assert refused.headers["retry-after"] == "1"
        made.wait_for(lambda: made.cancelled)
        assert chat(client).status_code == 200


def test_while_the_model_is_loaded_health_and_answers_say_503() -> None:
    with server(RequestBroker()) as running, httpx.Client(base_url=running.url, timeout=PATIENT) as client:
        check_error(client.get("/health"), 503, "unavailable_error", "being loaded")
        check_error(chat(client), 503, "unavailable_error", "being loaded")
        assert client.get("/").status_code == 200


def test_health_models_and_tokens_are_told(client: httpx.Client) -> None:
    assert client.get("/health").json()["status"] == "ok"
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", CONTEXT)
    assert client.get("/v1/models/tiny").json() == model
    check_error(client.get("/v1/models/a/b"), 404, "not_found_error", "a/b")
    tokens = client.post("/tokenize", json={"model": "tiny", "prompt": "a€"}).json()
    assert tokens == {"tokens": [97, 226, 130, 172], "count": 4, "max_model_len": CONTEXT}
    assert client.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": "a€"}
    assert client.post("/tokenize", json={"messages": ASKED}).json()["count"] == 31
    digits = "1" * (16 * 4096 + 1)  # of a context of 4,096 tokens
    for path, body in (
        ("/tokenize", {"model": "tiny", "prompt": digits}),
        ("/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": digits}]}),
        ("/v1/completions", {"model": "tiny", "prompt": digits}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": digits}]}),
    ):
        words = "a prompt of 65537 bytes; expected at most 65536"
        check_error(client.post(path, json=body), 400, "invalid_request_error", words)
    check_error(client.post("/tokenize", json={}), 400, "invalid_request_error", "either a prompt or messages")
    check_error(client.post("/detokenize", json={"tokens": [-1]}), 400, "invalid_request_error", "no token -1")


def test_the_metrics_have_vllms_names_and_count_what_happened(client: httpx.Client, made: Engine) -> None:
    chat(client)
    chat(client, stream=True, max_tokens=2)
    made.let(1)
    body = {"model": "tiny", "messages": [{"role": "user", "content": "step"}], "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        pieces = answer.iter_text()  # which would close the connection if it were freed
        next(pieces)
        found = {
            sample.name + (sample.labels.get("finished_reason") or ""): sample.value
            for family in text_string_to_metric_families(client.get("/metrics").text)
            for sample in family.samples
            if "le" not in sample.labels
        }
    assert {name: found[f"vllm:{name}"] for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
        "prompt_tokens_total", "generation_tokens_total", "request_success_totalstop", "request_success_totallength",
        "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
        "e2e_request_latency_seconds_count", "request_queue_time_seconds_count",
    )} == {
        "num_requests_running": 1, "num_requests_waiting": 0, "kv_cache_usage_perc": 1 / 256,
        "num_preemptions_total": 0,
        # 31 + 31 + "user: step\n"; 12 + 2 + 1 tokens, each answer's first has no gap before it
        "prompt_tokens_total": 73, "generation_tokens_total": 15,
        "request_success_totalstop": 1, "request_success_totallength": 1,
        "time_to_first_token_seconds_count": 3, "inter_token_latency_seconds_count": 12,
        "e2e_request_latency_seconds_count": 2, "request_queue_time_seconds_count": 3,
    }  # fmt: skip


AFTER = PlacementState(
    PlacementLayout("pipeline", (0, 2), (10, 20)), EngineLimits(1, CONTEXT, END + 1), {1: "no heartbeat for 5 s"}
)


def test_after_a_loss_the_shelf_and_the_prediction_are_those_of_the_placement_in_force(
    client: httpx.Client, made: Engine
) -> None:
    before = client.get("/shelf").json()
    assert [part["node"] for part in before["parts"]] == ["mini1", "mini2", "mini3"]
    assert before["lost"] == []
    made.front.open(made.loop.call_soon_threadsafe, AFTER)
    found = client.get("/shelf").json()
    assert [(part["node"], part["layers"]) for part in found["parts"]] == [("mini1", [0, 10]), ("mini3", [10, 30])]
    assert found["lost"] == [{"node": "mini2", "why": "no heartbeat for 5 s"}]
    assert found["load"]["engine"] == before["load"]["engine"] + 1
    assert json.loads(chat(client).headers["x-simcluster-timings"])["predicted"]["ttft_s"] == 0.75


def test_the_metrics_go_on_when_another_engine_counts_from_0(client: httpx.Client, made: Engine) -> None:
    """A counter may not decrease: 5 preemptions of the first engine, and 2 of the second one, are 7."""

    def counted(name: str) -> float:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return next(sample.value for family in families for sample in family.samples if sample.name == name)

    made.front.load(EngineLoad(1, 0, 0.5, 5, (), 40, 8, 5))
    assert counted("vllm:num_preemptions_total") == 5
    made.front.open(made.loop.call_soon_threadsafe, AFTER)
    made.front.load(EngineLoad(1, 0, 0.5, 2, (), 30, 6, 3))
    assert counted("vllm:num_preemptions_total") == 7
    assert counted("simcluster:prefilled_tokens_total") == 70
    assert counted("vllm:spec_decode_num_draft_tokens_total") == 14
    assert counted("vllm:spec_decode_num_accepted_tokens_total") == 8


def test_pages_that_leave_are_forgotten_and_one_too_many_is_refused(made: Engine) -> None:
    site = a_site(made.front)

    async def follow(count: int) -> None:
        app = make_app(site, {"localhost"})
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENT) as client:
            tasks = [asyncio.create_task(client.get("/live")) for _ in range(count)]
            while site.pages < count or len(made.front._watchers) < count:
                await asyncio.sleep(0)
            check_error(await client.get("/live"), 503, "unavailable_error", f"{MOST_PAGES} pages are open")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(follow(MOST_PAGES))
    assert (site.pages, made.front._watchers) == (0, set())


@pytest.mark.slow
def test_1000_requests_at_once_are_answered_or_refused_and_nothing_is_left() -> None:
    """100 have room, and wait for a permit each; 900 are refused meanwhile. Without sockets, which would be 2,000."""

    async def ask(front: RequestBroker, count: int, made: Engine) -> list[httpx.Response]:
        app = make_app(a_site(front), {"localhost"})
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENT) as client:
            body = {"model": "tiny", "messages": [{"role": "user", "content": "step"}]}
            tasks = [asyncio.create_task(client.post("/v1/chat/completions", json=body)) for _ in range(count)]
            refused, waiting = 0, set(tasks)
            while refused < count - 100:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                refused += len(done)
            made.let(100 * 14)  # 13 characters and the end
            return list(await asyncio.gather(*tasks))

    with engine(script, most=100) as made:
        answers = asyncio.run(ask(made.front, 1000, made))
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) == 900
        for answer in refused:
            check_error(answer, 503, "unavailable_error", "100 requests are open")
        assert made.front.open_requests == 0
        assert len(made.seen) == 100


@pytest.mark.slow
def test_300_connections_at_once_get_answers_in_the_apis_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the coordinator takes, and than may be without a request at once: 64 there."""
    monkeypatch.setattr(rate_limits, "ASK_S", 300.0)  # client and server share a process, and its cores

    async def ask(url: str) -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENT, limits=limits) as client:
            body = {"model": "tiny", "messages": ASKED}
            asked = [client.post("/v1/chat/completions", json=body) for _ in range(300)]
            return [answer.status_code for answer in await asyncio.gather(*asked) if answer.json()]

    with engine(script, most=300) as made, server(made.front) as running:
        assert asyncio.run(ask(running.url)) == [200] * 300


class Wordy(BytesDecoder):
    """Has 10 kB of text for every token."""

    def push(self, token: int) -> str:
        return "x" * 10_000 if token == ord("x") else super().push(token)


def test_a_client_that_takes_nothing_is_dropped_and_one_that_waits_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of 40 MB is larger than all buffers between: the server gives up when its patience is over, 0.2 s here.

    A client with an answer in progress that has taken all of it so far waits for longer than that.
    """
    dropped = threading.Event()

    def drop(patient: rate_limits.TimedConnection) -> None:
        patient.transport.abort()
        dropped.set()

    monkeypatch.setattr(rate_limits, "ANSWER_S", 0.2)
    monkeypatch.setattr(rate_limits.TimedConnection, "drop", drop)
    monkeypatch.setattr(Bytes, "decoder", lambda self, begins: Wordy())
    much = json.dumps({"model": "tiny", "prompt": "long", "stream": True, "max_tokens": 4000}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with (
        engine(lambda prompt: Script("ab", stepwise=True) if "wait" in prompt else Script("x" * 4000)) as made,
        server(made.front) as running,
        httpx.Client(base_url=running.url, timeout=PATIENT) as client,
        socket.create_connection(("127.0.0.1", client.base_url.port)) as lazy,
    ):
        made.let(1)
        body = {"model": "tiny", "prompt": "wait", "stream": True, "max_tokens": 3}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            pieces = answer.iter_text()
            text = next(pieces)
            lazy.sendall(f"{head}Content-Length: {len(much)}\r\n\r\n".encode() + much)
            dropped.wait()
            made.let(2)
            text += "".join(pieces)
            assert '"text": "a"' in text
            assert text.endswith("data: [DONE]\n\n")
            taken = 0
            with suppress(ConnectionResetError):
                while piece := lazy.recv(1 << 20):
                    taken += len(piece)
            assert taken < 40_000_000
