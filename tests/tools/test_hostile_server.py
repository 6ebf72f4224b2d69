"""Hostile clients at `simcluster serve`: nothing is left of them; tests/lm/serving/test_api.py has the answers."""

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

import psutil
import pytest

from tests.lm.serving.test_serve import Serving, model, serving

__all__ = ["model"]

ROUNDS = 3
GROWTH_BYTES = 48 * 1024**2
ASKED = {"model": "tiny", "prompt": "hello", "max_tokens": 8, "temperature": 0}

WRONG = [
    b"{",
    b'{"max_tokens": 1e',
    b"[]",
    b"[" * 100_000,
    b'{"model": "\xff"}',
    b'{"model": "tiny", "prompt": "x", "max_tokens": 1' + b"0" * 5000 + b"}",
    b'{"prompt": "' + b"x" * (2 << 20) + b'"}',
    *(
        json.dumps(ASKED | wrong).encode()
        for wrong in (
            {"model": "gpt-5"}, {"max_tokens": 0}, {"max_tokens": -1}, {"prompt": ""}, {"prompt": "x" * 5000},
            {"max_tokens": 10**9}, {"prompt": [1, 10**9]},
        )
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def found(model: Path):
    with serving(model, "sim", "--queue", "64") as made:
        yield made


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
        *(raw(host, port, request(body)) for body in WRONG),
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
