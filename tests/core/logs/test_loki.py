"""Lines pushed to a stub of Loki, which checks every push: in order, in batches, again if refused, never in the way."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.logs import loki
from simcluster.logs import setup as logs
from simcluster.logs.loki import LABELS, PATH, Loki, parse_url, streams
from simcluster.logs.setup import JsonLines

LABEL = {"type": "string", "minLength": 1}
PUSH = {
    "type": "object",
    "required": ["streams"],
    "additionalProperties": False,
    "properties": {
        "streams": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["stream", "values"],
                "additionalProperties": False,
                "properties": {
                    "stream": {
                        "type": "object",
                        "minProperties": 1,
                        "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
                        "additionalProperties": LABEL,
                    },
                    "values": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "array",
                            "minItems": 2,
                            "maxItems": 2,
                            "prefixItems": [{"type": "string", "pattern": "^[0-9]{19}$"}, {"type": "string"}],
                        },
                    },
                },
            },
        }
    },
}


class Stub:
    """Answers each push with the next of *answers*, then with 204; keeps what it took and all that was wrong."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.taken: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        self.asked = 0
        self.hold = threading.Event()
        self.hold.set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub.asked += 1
                stub.hold.wait(20)
                status = stub.answers.pop(0) if stub.answers else 204
                if self.path != PATH or self.headers["Content-Type"] != "application/json":
                    stub.wrong.append(f"{self.path} {self.headers['Content-Type']}")
                try:
                    push = json.loads(body)
                    jsonschema.validate(push, PUSH)
                    if status == 204:
                        stub.taken.append(push)
                except Exception as error:
                    stub.wrong.append(str(error))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def messages(self) -> list[str]:
        return [
            json.loads(line)["message"] for push in self.taken for one in push["streams"] for _, line in one["values"]
        ]


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.close()
    assert made.wrong == []


def handler(url: str) -> tuple[Loki, logging.Logger]:
    """One that does not sleep, and a logger for it alone."""
    made = Loki(url, JsonLines(), sleep=lambda time_s: None)
    logger = logging.Logger("alone")
    logger.addHandler(made)
    return made, logger


def test_lines_arrive_in_order_with_their_labels(stub: Stub) -> None:
    logs.about(job="quick", component="node", rank=3)
    made, logger = handler(stub.url)
    for number in range(1200):
        logger.info("line %d", number)
    made.close()
    logs.close()
    assert stub.messages == [f"line {number}" for number in range(1200)]
    assert len(stub.taken) >= 3  # of 500 lines at most
    labels = stub.taken[0]["streams"][0]["stream"]
    assert set(labels) == set(LABELS)
    assert (labels["job"], labels["component"], labels["rank"], labels["level"]) == ("quick", "node", "3", "info")
    assert made.dropped == 0


@pytest.mark.parametrize("answers", [[500, 503], [429], [502] * (loki.TRIES - 1)])
def test_what_is_refused_for_now_is_pushed_again(stub: Stub, answers: list[int]) -> None:
    stub.answers = list(answers)
    made, logger = handler(stub.url)
    logger.error("again")
    made.close()
    assert stub.messages == ["again"]
    assert stub.asked == len(answers) + 1
    assert made.dropped == 0


def test_what_is_refused_for_good_or_too_often_is_counted_and_said(
    stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    stub.answers = [400]
    made, logger = handler(stub.url)
    logger.error("never")
    made.close()
    assert (made.dropped, stub.asked, stub.messages) == (1, 1, [])
    assert "did not get: 1 lines" in caplog.text
    stub.answers = [500] * loki.TRIES
    made, logger = handler(stub.url)
    logger.error("never")
    made.close()
    assert (made.dropped, stub.asked) == (1, 1 + loki.TRIES)


def test_waits_between_tries_grow_to_a_limit(stub: Stub) -> None:
    stub.answers = [500] * loki.TRIES
    slept: list[float] = []
    made = Loki(stub.url, JsonLines(), sleep=slept.append)
    made.handle(logging.LogRecord("x", logging.INFO, "", 0, "x", (), None))
    made.close()
    assert slept == [0.5, 1.0, 2.0, 4.0]


def test_nobody_waits_for_a_loki_that_hangs_and_the_queue_is_bounded(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loki, "QUEUE", 50)
    monkeypatch.setattr(loki, "CLOSE_S", 0.05)
    stub.hold.clear()
    made, logger = handler(stub.url)
    logger.info("first")
    while not stub.asked:
        time.sleep(0.01)
    for number in range(80):
        logger.info("line %d", number)
    assert made.dropped == 30  # 50 of 80 are in the queue
    made.close()
    # and those 50 are dropped, too, and the one under way, of which nobody knows
    assert made.dropped == 81
    assert "did not get: 81 lines" in caplog.text


def test_nobody_there_harms_nothing() -> None:
    made, logger = handler("http://127.0.0.1:1")
    logger.error("into the void")
    made.close()
    assert made.dropped == 1


@pytest.mark.parametrize(
    ("url", "path"),
    [("http://loki:3100", PATH), ("https://logs.example/tenant/", "/tenant" + PATH), ("http://l" + PATH, PATH)],
)
def test_the_path_is_added_to_what_is_given(url: str, path: str) -> None:
    assert parse_url(url)[3] == path


@pytest.mark.parametrize(
    "url", ["loki:3100", "ftp://loki", "http://", "http://a:b@loki", "http://l/?x=1", "http://l:x"]
)
def test_what_is_no_place_of_a_loki_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--loki"):
        parse_url(url)


TIMES = st.integers(10**18, 2 * 10**18).map(str)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([{"job": "a"}, {"job": "b"}]), TIMES, st.text()), min_size=1))
def test_a_batch_is_a_valid_push_and_loses_no_line(batch: list[Any]) -> None:
    push = streams(batch)
    jsonschema.validate(push, PUSH)
    for job in "ab":
        sent = [[time_ns, line] for labels, time_ns, line in batch if labels["job"] == job]
        found = [one["values"] for one in push["streams"] if one["stream"]["job"] == job]
        assert found == ([sent] if sent else [])
