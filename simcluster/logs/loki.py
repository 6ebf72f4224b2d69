"""Push log lines to Loki from a separate thread, so that logging never waits for Loki.

Lines that do not fit into the queue, or that Loki rejects, are dropped; their number is logged at
the end. Batches are pushed in order. A line may arrive twice, since a lost answer looks like a
failed push.
"""

from __future__ import annotations

import http.client
import json
import logging
import queue
import threading
import urllib.parse
from collections.abc import Callable
from logging.handlers import QueueHandler, QueueListener
from typing import Any

from simcluster.errors import UsageError

PATH = "/loki/api/v1/push"
# The maximum numbers of lines that wait, and of lines in one push.
QUEUE, BATCH = 10_000, 500
TRIES = 5
FIRST_WAIT_S = 0.5
MOST_WAIT_S = 8.0
CALL_S = 5.0
CLOSE_S = 3.0
"""The time to push the remaining lines at the end: a command must not hang because Loki is down."""

LABELS = ("job", "component", "host", "level", "rank")
"""The labels to search by: each has few values, since Loki keeps a stream for each combination."""

log = logging.getLogger("simcluster.loki")

Entry = tuple[dict[str, str], str, str]
"""(labels, time in nanoseconds, line)."""


def parse_url(url: str) -> tuple[type[http.client.HTTPConnection], str, int, str]:
    """Return (class of connection, host, port, path) of "http(s)://HOST[:PORT][/PREFIX]". Raise
    UsageError for any other URL.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts = urllib.parse.urlsplit("")
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError("--loki", repr(url), "http://HOST:PORT or https://HOST, without a name or password")
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    prefix = parts.path.rstrip("/")
    return kind, parts.hostname, port or (443 if secure else 80), prefix if prefix.endswith(PATH) else prefix + PATH


class Loki(QueueHandler):
    """A handler that sends log lines to the Loki at *url*; *dropped* counts lost lines.

    *formatter* must return JSON with LABELS as keys.
    """

    def __init__(self, url: str, formatter: logging.Formatter, sleep: Callable[[float], object] | None = None) -> None:
        lines: queue.Queue[Any] = queue.Queue(QUEUE)
        super().__init__(lines)
        self.setFormatter(formatter)
        self.dropped = self._emitted = 0
        self._pusher = Pusher(url, lines, sleep)
        self._pusher.start()
        self._closed = False

    def prepare(self, record: logging.LogRecord) -> Entry:
        line = self.format(record)
        found = json.loads(line)
        labels = {key: str(found[key]) for key in LABELS if found.get(key) not in (None, "")}
        return labels, str(int(record.created * 1e9)), line

    def enqueue(self, record: Any) -> None:
        self._emitted += 1
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Push the remaining lines, for at most CLOSE_S; log the number of lost lines."""
        if not self._closed:
            self._closed = True
            stopping = threading.Thread(target=self._pusher.stop, daemon=True)
            stopping.start()
            stopping.join(CLOSE_S)
            self._pusher.is_over.set()
            self.dropped = self._emitted - self._pusher.pushed
            if self.dropped:
                log.warning("to Loki at %s did not get: %d lines", self._pusher.where, self.dropped)
        super().close()


class Pusher(QueueListener):
    """The thread that pushes *lines* to the Loki at *url*.

    A batch consists of the lines that arrived while the last push was in flight, at most BATCH.
    """

    def __init__(self, url: str, lines: queue.Queue[Any], sleep: Callable[[float], object] | None) -> None:
        super().__init__(lines)
        self._lines = lines
        self._kind, self._host, self._port, self._path = parse_url(url)
        self.where = f"{self._host}:{self._port}"
        self.is_over = threading.Event()
        self.pushed = 0
        self._batch: list[Entry] = []
        self._sleep = sleep if sleep is not None else self.is_over.wait

    def handle(self, record: Any) -> None:
        self._batch.append(record)
        if len(self._batch) == BATCH or self._lines.empty():
            self._push()

    def enqueue_sentinel(self) -> None:
        self._lines.put(self._sentinel)  # type: ignore[attr-defined] # waits while the queue is full

    def stop(self) -> None:
        super().stop()
        self._push()  # lines that arrived just before the sentinel

    def _push(self) -> None:
        batch, self._batch = self._batch, []
        body = json.dumps(streams(batch))
        wait_s = FIRST_WAIT_S
        for attempt in range(TRIES if batch else 0):
            if self.is_over.is_set():
                return
            status = self._post(body)
            if status is not None and status < 300:
                self.pushed += len(batch)
                return
            if status is not None and status < 500 and status != 429:
                return  # rejected by Loki: too old or malformed
            if attempt < TRIES - 1:
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, MOST_WAIT_S)

    def _post(self, body: str) -> int | None:
        """Push *body*; return the HTTP status of the answer, None if there is no answer."""
        connection = self._kind(self._host, self._port, timeout=CALL_S)
        try:
            connection.request("POST", self._path, body.encode(), {"Content-Type": "application/json"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def streams(batch: list[Entry]) -> dict[str, Any]:
    """Return *batch* in the format of Loki's push API: lines grouped by labels, in order."""
    found: dict[tuple[tuple[str, str], ...], list[list[str]]] = {}
    for labels, time_ns, line in batch:
        found.setdefault(tuple(labels.items()), []).append([time_ns, line])
    return {"streams": [{"stream": dict(labels), "values": values} for labels, values in found.items()]}
