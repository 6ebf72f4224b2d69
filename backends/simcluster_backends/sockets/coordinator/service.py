"""Run an HTTP service, such as the coordinator: in the foreground as a command, or in a thread alongside a run."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

import uvicorn

from simcluster.errors import Problem, RunError, UsageError
from simcluster.web.login import Login, invitation
from simcluster.web.requests import App, is_loopback
from simcluster_backends.sockets.coordinator.api import make_api
from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
from simcluster_backends.sockets.coordinator.rate_limits import ASKING_LIMIT, patient_protocol
from simcluster_backends.sockets.net.addresses import is_wildcard, open_socket, parse_endpoint, show_endpoint

MOST_CONNECTIONS = 256
START_S = 10.0
LOCAL = ("localhost", "127.0.0.1", "[::1]")

log = logging.getLogger("simcluster.sockets")


class AppServer:
    """Serves an application at *endpoint* ("host:port", port 0 for any): what *app_for* makes of its names.

    *hosts* are names of it besides those of *endpoint* and loopback. Over TLS if *secure* is given. Further than
    *connections* get 503. Raises UsageError, naming *key*, if it cannot listen at *endpoint*.
    """

    def __init__(
        self,
        endpoint: str,
        app_for: Callable[[Collection[str]], App],
        hosts: Iterable[str] = (),
        secure: ssl.SSLContext | None = None,
        key: str = "coordinator",
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        host, port = parse_endpoint(endpoint, key)
        hosts = list(hosts)
        if is_wildcard(host) and not hosts:
            found = f"{endpoint}, which is not a name"
            raise UsageError(Problem(key, found, "--allow-host NAME, the name that clients use"))
        self._socket = open_socket(host, port, key)
        bound = self._socket.getsockname()
        self.endpoint = show_endpoint(str(bound[0]), int(bound[1]))
        names = {*LOCAL, f"[{host}]" if ":" in host else host, *hosts}
        config = uvicorn.Config(
            app_for(names),
            log_level="warning",
            access_log=False,  # a path says no more than the run's log, and a header holds the token
            server_header=False,
            loop="asyncio",  # with uvloop, TLS that starts on an open connection loses its first bytes
            http=patient_protocol(secure, max(ASKING_LIMIT, connections // 4)),
            ws="none",
            lifespan="off",
            limit_concurrency=connections,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, name=key, daemon=True)
        scheme = "http" if secure is None else "https"
        self.url = f"{scheme}://{self.endpoint}"
        self.page_url = f"{scheme}://{hosts[0]}:{bound[1]}" if hosts else self.url

    def start(self) -> None:
        """Serve in a thread from now on. Raise RunError."""
        self._thread.start()
        end_s = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end_s:
                raise RunError(f"the {self._thread.name} at {self.endpoint} did not start")
            time.sleep(0.01)

    def run(self) -> None:
        self._server.run(sockets=[self._socket])

    def close(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(START_S)
        self._socket.close()


class CoordinatorService(AppServer):
    """Serves *desk* to holders of *token*, and its page to browsers.

    A browser needs the link that *told* is called with; on loopback only if *login*, or if *hosts* name it elsewhere:
    a proxy may then lead there.
    """

    def __init__(
        self,
        endpoint: str,
        token: str,
        desk: CoordinatorDesk,
        hosts: Iterable[str] = (),
        secure: ssl.SSLContext | None = None,
        *,
        told: Callable[[str], object] = print,
        login: bool = False,
    ) -> None:
        hosts = list(hosts)
        names = [parse_endpoint(endpoint, "coordinator")[0], *hosts]
        needs_login = login or not all(map(is_loopback, names))
        self._login = Login(lambda code: told(invitation(self.page_url, code))) if needs_login else None
        app_for = partial(make_api, desk, token, login=self._login, is_tls=secure is not None)
        super().__init__(endpoint, app_for, hosts, secure)

    def invite(self) -> None:
        """Print the first link of the page, if it needs one."""
        if self._login is not None:
            self._login.renew()
