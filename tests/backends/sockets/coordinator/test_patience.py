"""Strangers at the coordinator's port who never come to the point, and those who are answered all the same."""

from __future__ import annotations

import http.client
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from simcluster_backends.sockets.coordinator import rate_limits as patience
from simcluster_backends.sockets.coordinator.client import Client
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.rate_limits import ASKING_LIMIT, LOGGED
from simcluster_backends.sockets.coordinator.service import CoordinatorService
from simcluster_backends.sockets.net.addresses import parse_endpoint

from tools.hostile.reading import corpus

ASK_S = 0.2
TOKEN = "0123456789abcdef" * 4
HEAD = b"POST /telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoordinatorService]:
    """A service that does not answer yet: what is sent to it now is there before its patience begins."""
    monkeypatch.setattr(patience, "ASK_S", ASK_S)
    service = CoordinatorService("127.0.0.1:0", TOKEN, CoordinatorDesk(5.0, time.monotonic))
    yield service
    service.close()


@pytest.fixture
def service(waiting: CoordinatorService) -> CoordinatorService:
    waiting.start()
    return waiting


def visit(service: CoordinatorService) -> socket.socket:
    return socket.create_connection(parse_endpoint(service.endpoint, "coordinator"))


def answer(visitor: socket.socket) -> bytes:
    """All that comes until the connection is closed; raises TimeoutError if it never is."""
    found = b""
    try:
        while more := visitor.recv(65536):
            found += more
    except ConnectionError:
        pass
    return found


def check_crowd(service: CoordinatorService, client: Client) -> None:
    """Assert that *client* is answered though a crowd waits at *service*, and that the oldest of it go first."""
    with ExitStack() as crowd:
        visitors = [crowd.enter_context(visit(service)) for _ in range(ASKING_LIMIT + 20)]
        assert client.get("/status")["workers"] == []
        assert [answer(visitor) for visitor in visitors[:20]] == [b""] * 20
        visitors[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            visitors[-1].recv(1)


@contextmanager
def uvicorns_log() -> Iterator[list[str]]:
    """Yield the lines that the server logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.addHandler(handler)
    try:
        yield lines
    finally:
        uvicorn.removeHandler(handler)


@pytest.mark.parametrize("said", [b"", b"GET", b"GET /status HTTP/1.1\r\nHost: localhost\r\n"])
def test_whoever_has_not_asked_in_time_is_dropped(service: CoordinatorService, said: bytes) -> None:
    with visit(service) as visitor:
        visitor.sendall(said)
        assert answer(visitor) == b""


def test_bytes_that_trickle_win_no_time(service: CoordinatorService) -> None:
    with visit(service) as visitor, pytest.raises(ConnectionError):
        for _ in range(2000):
            visitor.sendall(b"x")
            time.sleep(0.01)


def test_a_body_that_nobody_wants_is_not_awaited_for_ever(waiting: CoordinatorService) -> None:
    with visit(waiting) as visitor:
        visitor.sendall(HEAD + b"\r\nx")
        waiting.start()
        assert answer(visitor).startswith(b"HTTP/1.1 401")


def test_the_open_page_is_given_without_waiting_for_the_body_of_its_request(waiting: CoordinatorService) -> None:
    with visit(waiting) as visitor:
        visitor.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000\r\n\r\nx")
        waiting.start()
        assert answer(visitor).startswith(b"HTTP/1.1 200")


def test_who_has_the_token_may_take_longer_over_a_body(waiting: CoordinatorService) -> None:
    body = b'{"name": "a"}'
    with visit(waiting) as visitor:
        head = f"POST /workers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        visitor.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        waiting.start()
        for byte in body:  # 13 * 0.03 s, twice what a stranger has
            time.sleep(0.03)
            visitor.sendall(bytes([byte]))
        assert answer(visitor).startswith(b"HTTP/1.1 200")


def test_an_answer_that_takes_too_long_ends_the_connection(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.3)
    with visit(service) as visitor:
        visitor.sendall(HEAD + f"Authorization: Bearer {TOKEN}\r\n\r\nx".encode())
        assert answer(visitor) == b""


def test_one_connection_may_ask_again_and_again(service: CoordinatorService) -> None:
    connection = http.client.HTTPConnection(*parse_endpoint(service.endpoint, "coordinator"))
    asked = 0
    while asked < 5:
        begun_s = time.monotonic()
        try:
            time.sleep(0.05)  # five times: together more than the 0.2 s that one request has
            connection.request("GET", "/status", headers={"Authorization": f"Bearer {TOKEN}"})
            assert connection.getresponse().read().startswith(b"{")
            asked += 1
        except (http.client.HTTPException, ConnectionError):
            assert time.monotonic() - begun_s > ASK_S, "dropped before its time"
            connection.close()  # this process did not run for so long: from the beginning
            asked = 0
    connection.close()


def test_a_crowd_that_asks_nothing_keeps_nobody_out_and_the_oldest_of_it_goes_first(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ASK_S", 60.0)
    check_crowd(service, Client(service.url, TOKEN))


def test_of_nonsense_the_log_tells_only_the_first_times(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ASK_S", 60.0)
    with uvicorns_log() as told:
        for _ in range(23):
            with visit(service) as visitor:
                visitor.sendall(b"\x00\x01nonsense\r\n\r\n")
                assert answer(visitor).startswith(b"HTTP/1.1 400")
    # The first five, and the tenth.
    assert len(told) == LOGGED + 1
    assert told[4].endswith("(more are only counted)")
    assert told[5].endswith("(10 so far)")


@pytest.mark.slow
def test_nothing_of_the_corpus_is_let_in_or_left_standing(
    service: CoordinatorService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in corpus("http"):
        with visit(service) as visitor:
            try:
                visitor.sendall(path.read_bytes())
            except ConnectionError:
                continue
            found = answer(visitor)
            assert b"HTTP/1.1 200" not in found or b"<!doctype html>" in found.lower(), path.name
    monkeypatch.setattr(patience, "ASK_S", 60.0)  # a busy machine may ask late
    assert Client(service.url, TOKEN).get("/status")["workers"] == []
