"""The client against a scripted server: latencies of good answers, every failure by its kind, and no hang."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simcluster.errors import UsageError
from simcluster.lm.load.arrivals import OfferedRequest
from simcluster.lm.load.metrics import figures
from simcluster.lm.serving.client.client import LoadOutcome, load_on
from simcluster.lm.serving.client.endpoint import Endpoint, endpoint_of
from tests.lm.serving.client.scripted import DONE, END, HEAD, Asked, Script, Write, delta, event, serving, well

THREE = [OfferedRequest(0.0, 5, 4), OfferedRequest(0.01, 50, 1), OfferedRequest(0.02, 5, 2)]


def loaded(
    script: Script, requests: Sequence[OfferedRequest] = (OfferedRequest(0.0, 5, 4),), path: str = "", **how: Any
) -> tuple[LoadOutcome, Asked]:
    async def run() -> tuple[LoadOutcome, Asked]:
        async with serving(script) as (url, asked):
            endpoint = endpoint_of(url + path, "m", None, False, how.pop("ignore_eos", False))
            return await load_on(endpoint, requests, **how), asked

    return asyncio.run(run())


def test_every_request_gets_its_answer_with_as_many_tokens_as_it_asked_for() -> None:
    counts: list[int] = []
    outcome, asked = loaded(well, THREE, told=counts.append)
    assert [(one.output_tokens, len(one.token_s), one.error) for one in outcome.answers] == [
        (4, 4, ""),
        (1, 1, ""),
        (2, 2, ""),
    ]
    assert all(one.prompt_tokens == 40 for one in outcome.answers)
    assert sorted(body["max_tokens"] for body in asked.bodies) == [1, 2, 4]
    assert sorted(len(body["messages"][0]["content"].split()) for body in asked.bodies) == [5, 5, 50]
    assert counts == [1, 2, 3]
    for one, request in zip(outcome.answers, THREE, strict=True):
        assert one.arrival_s == request.arrival_s <= one.token_s[0] <= one.token_s[-1] <= one.end_s
    assert figures(outcome.answers).completed == 3


def test_two_prompts_share_no_beginning_and_a_seed_repeats_them() -> None:
    def prompts(seed: int) -> list[str]:
        return sorted(body["messages"][0]["content"] for body in loaded(well, THREE, seed=seed)[1].bodies)

    first = prompts(1)
    assert len({text.split()[0] for text in first}) > 1
    assert first == prompts(1) != prompts(2)


def test_a_path_of_plain_completions_gets_prompts_and_a_base_gets_chats() -> None:
    async def plain(body: dict[str, Any], write: Write) -> None:
        await write(HEAD + event({"text": body["prompt"]}) + event({"text": "", "finish_reason": "stop"}))

    outcome, asked = loaded(plain, path="/v1/completions", ignore_eos=True)
    assert [one.error for one in outcome.answers] == [""]
    assert asked.heads[0].startswith("POST /v1/completions ")
    assert (asked.bodies[0]["ignore_eos"], "messages" in asked.bodies[0]) == (True, False)
    _, asked = loaded(well, path="/v1/")
    assert asked.heads[0].startswith("POST /v1/chat/completions ")
    assert "ignore_eos" not in asked.bodies[0]


def test_tokens_are_timed_when_their_chunks_come() -> None:
    async def slow(_: dict[str, Any], write: Write) -> None:
        await write(HEAD + delta("a"))
        await asyncio.sleep(0.05)
        await write(delta("b") + END + DONE)

    # Client and server share one loop, so that the first chunk is read before the sleep ends.
    (one,) = loaded(slow)[0].answers
    assert len(one.token_s) == 2
    assert one.itl_s[0] > 0


def status(line: str, body: str) -> Script:
    async def refuse(_: dict[str, Any], write: Write) -> None:
        head = f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await write(head.encode() + body.encode())

    return refuse


def sending(*data: bytes) -> Script:
    async def send(_: dict[str, Any], write: Write) -> None:
        for part in data:
            await write(part)

    return send


BUSY = status("429 Too Many Requests", '{"error": {"message": "slow down", "type": "rate_limit"}}')
MOVED = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind", "detail"),
    [
        (BUSY, "http 429", "slow down"),
        (status("500 Oh", "<html>oops"), "http 500", "<html>oops"),
        (status("404 No", '{"detail": "Not Found"}'), "http 404", "Not Found"),
        (sending(MOVED), "http 302", ""),
        (status("200 OK", '{"choices": []}'), "no stream", "application/json"),
        (sending(b"no http\r\n\r\n"), "closed", ""),
        (sending(b""), "closed", ""),
        (sending(HEAD, delta("a")), "closed", "before the answer did"),
        (sending(HEAD, delta("a"), b"data: {\n\n"), "malformed", "no JSON"),
        (sending(HEAD, b"data: 7\n\n"), "malformed", "no chunk"),
        (sending(HEAD, b'data: {"choices": 3}\n\n'), "malformed", "no choices"),
        (sending(HEAD, b"data: " + b"[" * 100_000 + b"\n\n"), "malformed", "no JSON"),
        (
            sending(HEAD, delta("a"), event(None, error={"message": "node n2 is lost"})),
            "error chunk",
            "node n2 is lost",
        ),
        (sending(HEAD, END, DONE), "empty", "without text"),
        (sending(HEAD, b"data: " + b"a" * 2**21), "too large", "bytes"),
        (sending(HEAD, *[b": nothing\n" * 10_000] * 700), "too large", "bytes"),
    ],
)
def test_a_failure_is_counted_by_its_kind(script: Script, kind: str, detail: str) -> None:
    outcome, _ = loaded(script)
    assert [one.error for one in outcome.answers] == [kind]
    assert detail in outcome.details[kind]
    found = figures(outcome.answers)
    assert (found.completed, found.errors) == (0, {kind: 1})


def test_a_server_that_does_not_answer_costs_the_limit_and_no_more() -> None:
    async def silent(_: dict[str, Any], write: Write) -> None:
        await asyncio.Event().wait()

    async def chatty(_: dict[str, Any], write: Write) -> None:
        await write(HEAD)
        while True:  # until the client leaves: comments keep the connection alive, not the request
            await write(b": keep-alive\n\n")
            await asyncio.sleep(0.01)

    for script in (silent, chatty):
        outcome, _ = loaded(script, THREE, limit_s=0.3)
        assert [one.error for one in outcome.answers] == ["timeout"] * 3


def test_one_failure_leaves_the_others_alone() -> None:
    async def picky(body: dict[str, Any], write: Write) -> None:
        await (BUSY if body["max_tokens"] == 1 else well)(body, write)

    assert [one.error for one in loaded(picky, THREE)[0].answers] == ["", "http 429", ""]


def test_more_requests_than_a_pool_of_connections_are_in_flight_at_once() -> None:
    arrived, everyone = [0], asyncio.Event()

    async def together(body: dict[str, Any], write: Write) -> None:
        arrived[0] += 1
        if arrived[0] == 150:
            everyone.set()
        await everyone.wait()
        await well(body, write)

    outcome, _ = loaded(together, [OfferedRequest(0.0, 1, 1)] * 150)
    assert {one.error for one in outcome.answers} == {""}


def test_a_port_where_no_server_listens_is_told() -> None:
    async def run() -> LoadOutcome:
        async with serving(well) as (url, _):
            pass
        return await load_on(endpoint_of(url, "m", None, False, False), THREE)

    outcome = asyncio.run(run())
    assert [one.error for one in outcome.answers] == ["connect"] * 3


def test_a_token_is_sent_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-7\n")
    endpoint = endpoint_of("http://localhost:1", "m", tmp_path / "token", False, False)
    assert endpoint.headers["Authorization"] == "Bearer secret-7"
    assert "secret" not in repr(endpoint)
    assert "Authorization" not in Endpoint("http://h", "m").headers


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8000", "expected http(s)://HOST:PORT"),
        ("ftp://h", "expected http(s)://HOST:PORT"),
        ("http://user:word@h", "expected http(s)://HOST:PORT"),
        ("http://h:99999", "expected http(s)://HOST:PORT"),
        ("http://h/v1?key=1", "expected http(s)://HOST:PORT"),
        ("http://[::1", "expected http(s)://HOST:PORT"),
        ("http://10.0.0.1:8000", "--plain-http"),
    ],
)
def test_a_url_that_is_none_or_would_show_the_token_is_refused(url: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with pytest.raises(UsageError) as error:
        endpoint_of(url, "m", tmp_path / "token", False, False)
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "x" * 5000, "\x00", "é"])
def test_a_file_without_a_token_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(UsageError, match="--token-file"):
        endpoint_of("https://h", "m", tmp_path / "token", False, False)
    with pytest.raises(UsageError, match="No such file"):
        endpoint_of("https://h", "m", tmp_path / "none", False, False)
