"""Pushes log lines to Loki, from a thread of its own: it never waits for Loki where something is logged.

What does not fit into the queue, or is refused for good, is dropped and counted, and in the end it is said how much
that was. Batches go out in order, but a line may arrive twice: an answer that is lost looks like a push that failed.
"""

from __future__ import annotations

import http.client
import json
import logging
import queue
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from simcluster.errors import Problem, UsageError

PATH = "/loki/api/v1/push"
QUEUE, BATCH, LINGER_S = 10_000, 500, 1.0
TRIES, FIRST_WAIT_S, MOST_WAIT_S = 5, 0.5, 8.0
CALL_S, CLOSE_S = 5.0, 3.0
LABELS = ("job", "component", "host", "level", "rank")
"""What lines are found by: few values each, so that Loki keeps few streams."""

log = logging.getLogger("simcluster.loki")

Entry = tuple[dict[str, str], str, str]
"""(labels, time in nanoseconds, line)."""


def parse_url(url: str) -> tuple[type[http.client.HTTPConnection], str, int, str]:
    """(the kind of connection, host, port, path) of "http(s)://HOST[:PORT][/PREFIX]". Raises UsageError."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError(Problem("--loki", repr(url), "http://HOST:PORT or https://HOST, without a name or password"))
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    prefix = parts.path.rstrip("/")
    return kind, parts.hostname, port or (443 if secure else 80), prefix if prefix.endswith(PATH) else prefix + PATH


class Loki(logging.Handler):
    """Lines of *formatter*, whose keys are labels, to the Loki at *url*. *dropped* counts what did not get there."""

    def __init__(self, url: str, formatter: logging.Formatter, sleep: Callable[[float], object] | None = None) -> None:
        super().__init__()
        self._kind, self._host, self._port, self._path = parse_url(url)
        self.setFormatter(formatter)
        self.dropped = self._in_hand = 0
        self._queue: queue.Queue[Entry] = queue.Queue(QUEUE)
        self._closing, self._over = threading.Event(), threading.Event()
        self._sleep = sleep if sleep is not None else self._over.wait
        self._thread = threading.Thread(target=self._work, name="loki", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Takes *record* without waiting for anything."""
        try:
            line = self.format(record)
            found = json.loads(line)
            labels = {key: str(found[key]) for key in LABELS if found.get(key) not in (None, "")}
            self._queue.put_nowait((labels, str(int(record.created * 1e9)), line))
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Pushes what is left, but not for long."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join(CLOSE_S)
            self._over.set()
            if self._thread.is_alive():
                self.dropped += self._in_hand + self._queue.qsize()
            if self.dropped:
                log.warning("to Loki at %s:%d did not get: %d lines", self._host, self._port, self.dropped)
        super().close()

    def _work(self) -> None:
        while not self._over.is_set():
            batch = self._batch()
            if batch:
                self._in_hand = len(batch)
                self._push(batch)
                self._in_hand = 0
            elif self._closing.is_set():
                return

    def _batch(self) -> list[Entry]:
        """What has come, after a while."""
        batch: list[Entry] = []
        end_s = time.monotonic() + LINGER_S
        while len(batch) < BATCH:
            left_s = 0.0 if self._closing.is_set() else end_s - time.monotonic()
            try:
                batch.append(self._queue.get(timeout=max(0.01, min(0.1, left_s))))
            except queue.Empty:
                if left_s <= 0:
                    break
        return batch

    def _push(self, batch: list[Entry]) -> None:
        body, wait_s = json.dumps(streams(batch)), FIRST_WAIT_S
        for attempt in range(TRIES):
            status = self._post(body)
            if status is not None and status < 300:
                return
            if status is not None and status < 500 and status != 429:
                break  # Loki will not have it: too old, or not what it takes
            if attempt < TRIES - 1:
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)
            if self._over.is_set():
                return  # counted by whoever closed this
        if not self._over.is_set():
            self.dropped += len(batch)

    def _post(self, body: str) -> int | None:
        """The status of the answer; None if there is none."""
        connection = self._kind(self._host, self._port, timeout=CALL_S)
        try:
            connection.request("POST", self._path, body.encode(), {"Content-Type": "application/json"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def streams(batch: list[Entry]) -> dict[str, Any]:
    """*batch* as Loki's push API takes it: lines of the same labels together, in order."""
    found: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
    for labels, time_ns, line in batch:
        found.setdefault(tuple(labels.items()), []).append([time_ns, line])
    return {"streams": [{"stream": dict(labels), "values": values} for labels, values in found.items()]}
