"""Calls a coordinator from a launcher or a node, with Python's own HTTP and nothing else.

This file knows requests and their errors. It must not know what the answers are used for.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any

from simcluster.errors import Problem, RunError, UsageError

CALL_S = 5.0
ANSWER_LIMIT_BYTES = 16 * 1024**2


class NoAnswer(RunError):
    """Nobody answers there, or not yet."""


class NotAllowed(RunError):
    """The coordinator refuses the call: another token, or another name than it is called by."""


class Client:
    """A coordinator at *url* ("http://host:port"), called with *token*. Raises UsageError for another kind of URL."""

    def __init__(self, url: str, token: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.username:
            raise UsageError(Problem("coordinator", repr(url), "http://HOST:PORT"))
        self.url, self._host, self._port = url, parts.hostname, parts.port or 80
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def get(self, path: str, **parameters: object) -> Any:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        return self._call("GET", path + query, None)

    def post(self, path: str, content: object = None) -> Any:
        return self._call("POST", path, json.dumps(content if content is not None else {}, allow_nan=False))

    def _call(self, method: str, path: str, body: str | None) -> Any:
        """The answer. Raises NoAnswer, NotAllowed, or RunError for any other refusal."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=CALL_S)
        try:
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_LIMIT_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"no answer from the coordinator at {self.url}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        words = content[:500].decode(errors="replace")
        if answer.status in (401, 421):
            raise NotAllowed(f"the coordinator at {self.url} says {answer.status}: {words}")
        if answer.status != 200:
            raise RunError(f"the coordinator at {self.url} says {answer.status} to {method} {path}: {words}")
        try:
            return json.loads(content)
        except ValueError:
            raise RunError(f"{self.url} is no coordinator: it answers {words[:80]!r}") from None
