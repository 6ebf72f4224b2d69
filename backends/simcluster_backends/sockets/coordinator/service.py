"""Run an HTTP service such as the coordinator, either alone or in a thread alongside a run."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

import uvicorn

from simcluster.errors import RunError, UsageError
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
    """A server of an application at *endpoint*, "host:port"; port 0 takes any free port.

    *app_for* is called with the server's names, and returns the application. The names are *hosts*,
    the host of *endpoint*, and the names of loopback. The server uses TLS if *secure* is given. It
    answers connections beyond *connections* with status 503. Raise UsageError, naming *key*, if it
    cannot listen, or if *endpoint* is a wildcard and *hosts* is empty.
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
            raise UsageError(key, found, "--allow-host NAME, the name that clients use")
        self._socket = open_socket(host, port, key)
        bound = self._socket.getsockname()
        self.endpoint = show_endpoint(str(bound[0]), int(bound[1]))
        names = {*LOCAL, f"[{host}]" if ":" in host else host, *hosts}
        config = uvicorn.Config(
            app_for(names),
            log_level="warning",
            access_log=False,  # the run's log has the same facts, and a header holds the token
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
        """Serve in a thread. Return once it accepts connections; raise RunError if it does not."""
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
    """A server of *desk* for holders of *token*, and of its dashboard for browsers.

    A browser off loopback needs a login link, and *told* is called with the link. On loopback, a
    browser needs a link if *login* is set, or if *hosts* has names off loopback: a proxy may then
    serve the dashboard elsewhere.
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
        """Report the first login link of the dashboard, if it needs one."""
        if self._login is not None:
            self._login.renew()
