"""A coordinator's client for launchers and nodes, with only Python's standard library for HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

from simcluster.errors import RunError, UsageError
from simcluster.web.requests import is_loopback
from simcluster_backends.sockets.net.tls import COORDINATOR, in_words, names_in, trust

CALL_S = 5.0
ANSWER_LIMIT_BYTES = 16 * 1024**2
IN_CLEAR = "https:// and --tls FOLDER, a tunnel to loopback, or --plain-http: anyone on the path could read the token"


class NoAnswer(RunError):
    """The coordinator has not answered; it may answer later."""


class NotAllowed(RunError):
    """The coordinator will refuse all calls: the token, name, scheme or certificate is wrong."""

    def __init__(self, url: str, found: str, expected: str) -> None:
        self.found = f"{url}, {found}"
        self.expected = expected
        super().__init__(f"the coordinator: found {self.found}, expected {expected}")


REFUSALS = {
    401: ("which does not take this token", "the token that it was started with"),
    421: ("which has another name", "one of its names, or --allow-host with this one when starting it"),
}


class Client:
    """A client of the coordinator at *url*, "https://host:port" or "http://host:port".

    Every call sends *token*. Over https, the coordinator must first present a certificate signed by
    the CA in the directory *tls*. Raise UsageError for any other URL, for https without *tls*, and
    for http to another machine unless *plain_http* is set.
    """

    def __init__(self, url: str, token: str, *, tls: str | None = None, plain_http: bool = False) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
            raise UsageError("coordinator", repr(url), "https://HOST:PORT or http://HOST:PORT")
        if parts.scheme == "http" and not plain_http and not is_loopback(parts.hostname):
            raise UsageError("coordinator", url, IN_CLEAR)
        if parts.scheme == "https" and tls is None:
            raise UsageError("coordinator", url, "--tls FOLDER, too: its ca.pem says what to trust")
        self.url = url
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._trust = trust(Path(tls)) if parts.scheme == "https" and tls is not None else None
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def get(self, path: str, **parameters: object) -> Any:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        return self._call("GET", path + query, None)

    def post(self, path: str, content: object = None) -> Any:
        return self._call("POST", path, json.dumps(content if content is not None else {}, allow_nan=False))

    def _call(self, method: str, path: str, body: str | None) -> Any:
        """Return the JSON of the answer. Raise NoAnswer if there is none, NotAllowed if the
        coordinator will refuse every call, and RunError for any other failure.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=CALL_S)
        if self._trust is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=CALL_S, context=self._trust)
        try:
            connection.connect()
            self._believe(connection)
            connection.request(method, path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_LIMIT_BYTES)
        except ssl.SSLError as error:
            expected = "a coordinator with --tls and a certificate of the authority in --tls FOLDER here"
            raise NotAllowed(self.url, in_words(error), expected) from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            if isinstance(error, http.client.RemoteDisconnected) and self._trust is None:
                reason += " (if it was started with --tls: use https:// and --tls FOLDER)"
            raise NoAnswer(f"no answer from the coordinator at {self.url}: {reason}") from None
        finally:
            connection.close()
        words = content[:500].decode(errors="replace").strip()
        if answer.status in REFUSALS:
            raise NotAllowed(self.url, *REFUSALS[answer.status])
        if answer.status != 200:
            raise RunError(f"the coordinator at {self.url} says {answer.status} to {method} {path}: {words}")
        try:
            return json.loads(content)
        except ValueError:
            raise RunError(f"{self.url} is no coordinator: it answers {words[:80]!r}") from None

    def _believe(self, connection: http.client.HTTPConnection) -> None:
        """Raise NotAllowed if the peer's certificate is not a coordinator's: it may be a node's."""
        if isinstance(connection.sock, ssl.SSLSocket) and COORDINATOR not in (
            names := names_in(connection.sock.getpeercert())
        ):
            found = f"which shows the certificate of {', '.join(sorted(names)) or 'no node'}"
            raise NotAllowed(self.url, found, "that of a coordinator")
