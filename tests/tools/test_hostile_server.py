"""Hostile clients at `simcluster serve`: each gets its status in the API's shape, and nothing is left of them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.lm.serving.test_serve import Serving, model, serving

__all__ = ["model"]

ROUNDS = 3
GROWTH_BYTES = 48 * 1024**2
ASKED = {"model": "tiny", "prompt": "hello", "max_tokens": 8, "temperature": 0}

WRONG = {
    "no JSON": (b"{", 400),
    "half of a number": (b'{"max_tokens": 1e', 400),
    "a list": (b"[]", 400),
    "deep": (b"[" * 100_000, 400),
    "not UTF-8": (b'{"model": "\xff"}', 400),
    "another model": (json.dumps(ASKED | {"model": "gpt-5"}).encode(), 404),
    "zero tokens": (json.dumps(ASKED | {"max_tokens": 0}).encode(), 400),
    "fewer than zero": (json.dumps(ASKED | {"max_tokens": -1}).encode(), 400),
    "an empty prompt": (json.dumps(ASKED | {"prompt": ""}).encode(), 400),
    "longer than the context": (json.dumps(ASKED | {"prompt": "x" * 5000}).encode(), 400),
    "more tokens than the context": (json.dumps(ASKED | {"max_tokens": 10**9}).encode(), 400),
    "a token that is none": (json.dumps(ASKED | {"prompt": [1, 10**9]}).encode(), 400),
    "a huge number": (b'{"model": "tiny", "prompt": "x", "max_tokens": 1' + b"0" * 5000 + b"}", 400),
    "a huge body": (b'{"prompt": "' + b"x" * (2 << 20) + b'"}', 413),
}


@pytest.fixture(scope="module")
def found(model: Path):
    with serving(model, "sim", "--queue", "64") as made:
        yield made


def error_in(answer: httpx.Response) -> dict[str, object]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_request_gets_its_status_and_an_error_of_the_apis_shape(found: Serving, kind: str) -> None:
    body, status = WRONG[kind]
    answer = found.client.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text[:200]
    error_in(answer)


@pytest.mark.slow
def test_nothing_is_left_of_hostile_clients_and_the_answers_are_those_of_before(found: Serving) -> None:
    before = found.complete().json()["choices"]
    asyncio.run(besieged(found))  # what any load takes
    at_rest(found)
    process = psutil.Process(found.process.pid)
    files, memory = process.num_fds(), process.memory_info().rss
    for _ in range(ROUNDS):
        ends = asyncio.run(besieged(found))
        assert set(ends) <= {"200", "400", "404", "413", "431", "503", "closed"}
        assert ends["200"] > 0
        assert ends["503"] > 0
    at_rest(found)
    until(lambda: process.num_fds() <= files, "sockets are left open")
    assert process.memory_info().rss < memory + GROWTH_BYTES
    assert found.complete().json()["choices"] == before


def at_rest(found: Serving) -> None:
    """Wait until no request is there and the cache is free."""
    until(lambda: sum(numbers(found).values()) == 0, "requests or blocks are left")


def numbers(found: Serving) -> dict[str, float]:
    names = "num_requests_running|num_requests_waiting|kv_cache_usage_perc"
    text = found.client.get("/metrics").text
    values = dict(re.findall(rf"^vllm:({names})(?:{{.*}})? (\S+)$", text, re.MULTILINE))
    assert len(values) == 3, text
    return {name: float(value) for name, value in values.items()}


def until(condition, what: str) -> None:
    """Wait for *condition*, which a working server reaches by itself."""
    ends_s = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < ends_s, what
        time.sleep(0.05)


async def besieged(found: Serving) -> Counter[str]:
    """Visit in every bad manner at once; return how often each status came."""
    at = urlsplit(str(found.client.base_url))
    host, port = at.hostname or "", at.port or 0
    long = ASKED | {"max_tokens": 500, "stream": True}
    visits = [
        *(leave(host, port, long, after) for after in range(20)),
        *(raw(host, port, request(body)) for body, _ in WRONG.values()),
        raw(host, port, b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(50_000)) + b"\r\n"),
        raw(host, port, b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n"),
        raw(host, port, b"\x16\x03\x01\x02\x00" * 100),
        raw(host, port, request(b"{", b"-1")),
        raw(host, port, b"POST /v1/comp"),  # and waits: slow clients are sent away
        raw(host, port, request(b'{"mod', b"1000")),
        raw(host, port, request(b"{", b"9" * 30)),
        *(drop(host, port, data) for data in (b"", b"POST /v1/comp", request(b"{", b"1000"))),
        *(raw(host, port, request(json.dumps(ASKED).encode())) for _ in range(1000)),
    ]
    return Counter(await asyncio.gather(*visits))


def request(body: bytes, length: bytes = b"") -> bytes:
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    return head + b"Content-Length: " + (length or str(len(body)).encode()) + b"\r\n\r\n" + body


async def raw(host: str, port: int, data: bytes) -> str:
    """Send *data*; return the status, or "closed"."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        await writer.drain()
        line = await reader.readline()
        await reader.read()
        return line.split(b" ")[1].decode() if line.startswith(b"HTTP/1.1 ") else "closed"
    except ConnectionError:
        return "closed"
    finally:
        writer.close()


async def drop(host: str, port: int, data: bytes) -> str:
    """Send *data*, which is not a whole request, and leave with a reset."""
    _, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    await writer.drain()
    end: socket.socket = writer.get_extra_info("socket")
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    writer.close()
    return "closed"


async def leave(host: str, port: int, body: dict[str, object], lines: int) -> str:
    """Ask for a stream, read a few *lines* of it, and leave."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request(json.dumps(body).encode()))
    with suppress(ConnectionError):  # it was refused
        for _ in range(lines):
            await reader.readline()
    writer.transport.abort()
    return "closed"
