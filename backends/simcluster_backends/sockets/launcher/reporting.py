"""Report a run to a coordinator: one started here for this run, or one at a URL.

If the coordinator does not answer, the run continues after a warning in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from simcluster.errors import Problem, RunError, UsageError, raise_all
from simcluster.job import ClusterJob
from simcluster.watching.board import CONFIG_CHARACTERS
from simcluster.watching.telling import run_info
from simcluster_backends.sockets.launcher.settings import (
    MOST_DEAD_S,
    SocketOptions,
    check_coordinator,
    is_elsewhere,
    read_options,
)
from simcluster_backends.sockets.net.tls import tls_of_coordinator
from simcluster_backends.sockets.wire.keys import read_token

if TYPE_CHECKING:
    from simcluster.watching.board import RunInfo, Telemetry
    from simcluster.watching.telling import NodeRows
    from simcluster.web.requests import App
    from simcluster_backends.sockets.coordinator.client import Client
    from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
    from simcluster_backends.sockets.coordinator.service import AppServer, CoordinatorService

log = logging.getLogger("simcluster.sockets")

Post = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""A function (path, content) that calls a coordinator. It returns the answer or raises RunError."""


def _here(desk: CoordinatorDesk) -> Post:
    calls: dict[str, Callable[[Any], dict[str, Any]]] = {
        "/runs": desk.begin,
        "/telemetry": desk.telemetry,
        "/runs/end": desk.end,
    }

    async def post(path: str, content: Any) -> dict[str, Any]:
        return calls[path](content)

    return post


def _elsewhere(client: Client) -> Post:
    from simcluster.watching.board import plain

    async def post(path: str, content: Any) -> dict[str, Any]:
        # In a thread, so that a slow coordinator does not block the loop.
        sent = {"error": content[:10_000]} if isinstance(content, str) else plain(content.model_dump())
        answer: dict[str, Any] = await asyncio.to_thread(client.post, path, sent)
        return answer

    return post


class Reporter:
    """A reporter of all attempts of *job*: to its watcher, its follower and a coordinator.

    *post* calls the coordinator; it is None if there is none.
    """

    def __init__(self, job: ClusterJob, post: Post | None, interval_s: float) -> None:
        self._job = job
        self._post = post
        self._interval_s = interval_s
        self._watcher = job.watcher
        self._follower = job.follower
        self._attempt = 0
        self._warned = self._known = False
        self._run: RunInfo | None = None
        self._last: Telemetry | None = None

    async def begin(self, rendezvous: str) -> None:
        """Report that an attempt begins, in which the nodes meet at *rendezvous*."""
        self._attempt += 1
        job, drawn = self._job, self._job.topology if self._post is not None else None
        run = run_info(job.names, job.seed, job.about, "sockets", rendezvous, self._attempt, drawn=drawn)
        if self._post is not None:
            folder = job.log_folder.absolute().parent if job.log_folder is not None else ""
            run = run.model_copy(update={"config": _readable(job.config_json), "folder": str(folder)[:4096]})
        self._run = run
        self._known = False
        if self._watcher is not None:
            self._watcher.begin(self._run)
        if self._follower is not None:
            self._follower.begin(self._run)
        await self._tell("/runs", self._run)

    async def run(
        self,
        telemetry: Callable[[], Telemetry],
        rows: Callable[[], Sequence[NodeRows]],
        leave: Callable[[Collection[str]], object],
    ) -> None:
        """Report at every interval until cancelled. Return at once if no recipient exists.

        *leave* is called with the names of nodes that the coordinator asks to leave.
        """
        while any(given is not None for given in (self._post, self._watcher, self._follower)):
            if self._follower is not None:
                self._follower.look(rows)
            if self._watcher is not None:
                self._watcher.look(telemetry)
            if self._post is not None and (names := await self._tell("/telemetry", telemetry())):
                leave(names)
            await asyncio.sleep(self._interval_s)

    async def last(self, telemetry: Callable[[], Telemetry]) -> None:
        self._last = telemetry()
        await self._tell("/telemetry", self._last)

    async def end(self, error: str) -> None:
        if self._watcher is not None:
            self._watcher.end(self._last, error)
        await self._tell("/runs/end", error)

    async def _tell(self, path: str, content: Any) -> Collection[str]:
        """Call the coordinator; return the names of nodes that it asks to leave.

        A coordinator that does not know the run first gets its beginning, and then its telemetry.
        """
        names = None
        if self._post is None:
            return ()
        try:
            if path == "/telemetry" and not self._known:
                await self._post("/runs", self._run)
                self._known = True
            answer = await self._post(path, content)
            if path == "/runs":
                self._known = True
            elif path == "/telemetry":
                self._known, names = bool(answer["running"]), answer.get("leave")
            self._warned = False
        except RunError as error:
            if not self._warned:
                log.warning("%s; the run continues", error)
            self._warned = True
        return frozenset(map(str, names)) if isinstance(names, list) else ()


def _readable(config_json: str) -> str:
    """Return *config_json* as YAML, cut off at CONFIG_CHARACTERS."""
    try:
        text = yaml.safe_dump(json.loads(config_json), sort_keys=False, allow_unicode=True)
    except ValueError:
        text = config_json
    return text if len(text) <= CONFIG_CHARACTERS else f"{text[: CONFIG_CHARACTERS - 40]}\n# and more: see config.yaml"


def show_report(job: ClusterJob, report: Path) -> None:
    """Send the *report* of a run that has ended to its coordinator, whose page then links to it.

    If the coordinator refuses, log a warning. If the run started its own coordinator, do nothing,
    because that has ended.
    """
    options, _ = read_options(job)
    if options.coordinator is None or not is_elsewhere(options.coordinator):
        return
    from simcluster_backends.sockets.coordinator.client import Client

    token = read_token(Path(options.token_file or ""))
    client = Client(options.coordinator, token, tls=options.tls, plain_http=options.plain_http)
    try:
        client.post("/runs/report", {"page": report.read_text(encoding="utf-8")})
    except RunError as error:
        log.warning("%s; its page has no link to the report", error)


@asynccontextmanager
async def reporting(job: ClusterJob, options: SocketOptions) -> AsyncIterator[Reporter]:
    """Yield a reporter for *job*, and run a coordinator meanwhile if *options* ask for one here.

    Raise UsageError at once if a coordinator elsewhere would refuse the run's calls, and RunError
    if one here does not start.
    """
    if options.coordinator is None:
        yield Reporter(job, None, options.heartbeat_s)
        return
    token = read_token(Path(options.token_file or ""))
    if is_elsewhere(options.coordinator):
        from simcluster_backends.sockets.coordinator.client import Client, NotAllowed

        client = Client(options.coordinator, token, tls=options.tls, plain_http=options.plain_http)
        try:
            await asyncio.to_thread(client.get, "/training/ready")
        except NotAllowed as error:
            raise UsageError("coordinator", error.found, error.expected) from None
        except RunError:
            pass  # not reachable yet: the warning comes when the run begins
        yield Reporter(job, _elsewhere(client), options.heartbeat_s)
        return
    told = partial(job.on_output or _to_terminal, "coordinator")
    desk, service = _make(options.coordinator, token, options.dead_s, (), options.tls, told)
    service.start()
    log.info("coordinator at %s", service.url)
    if job.on_output is not None:
        job.on_output("coordinator", service.url)
    service.invite()
    try:
        yield Reporter(job, _here(desk), options.heartbeat_s)
    finally:
        await asyncio.to_thread(service.close)


def coordinate(
    listen: str,
    token_file: Path,
    dead_s: float,
    hosts: Sequence[str],
    told: Callable[[str], object],
    tls: str | None = None,
    plain_http: bool = False,
    login: bool = False,
) -> None:
    """Run a standalone coordinator at *listen* until it is interrupted.

    *told* is called with lines for the terminal. The coordinator also answers to the names *hosts*.
    It uses TLS if *tls*, a directory with its certificate, is given. With *login* its page needs a
    login link even on loopback. Raise UsageError with all problems.
    """
    problems = []
    try:
        check_coordinator(listen, tls, plain_http)
    except UsageError as error:
        problems += error.problems
    if not 0 < dead_s <= MOST_DEAD_S:
        problems.append(Problem("dead_s", f"{dead_s:g}", f"more than 0 and at most {MOST_DEAD_S:g} s"))
    raise_all(problems)
    _, service = _make(listen, read_token(token_file), dead_s, hosts, tls, told, login)
    told(f"coordinator at {service.url}")
    service.invite()
    try:
        service.run()
    finally:
        service.close()


def serving(
    listen: str,
    app_for: Callable[[Collection[str]], App],
    hosts: Sequence[str],
    tls: str | None,
    plain_http: bool,
    key: str,
    connections: int | None = None,
) -> AppServer:
    """Return a server of another application, with a coordinator's rules for TLS, names and limits.

    Raise UsageError, naming *key*, if it cannot be served at *listen*.
    """
    check_coordinator(listen, tls, plain_http, key)
    from simcluster_backends.sockets.coordinator.service import MOST_CONNECTIONS, AppServer

    secure = tls_of_coordinator(Path(tls)) if tls is not None else None
    return AppServer(listen, app_for, hosts, secure, key, connections or MOST_CONNECTIONS)


def _to_terminal(name: str, line: str) -> None:
    """Print a line for a run without other output; it may be a login link, so do not log it."""
    print(f"{name}: {line}", file=sys.stderr, flush=True)


def _make(
    listen: str,
    token: str,
    dead_s: float,
    hosts: Sequence[str],
    tls: str | None,
    told: Callable[[str], object],
    login: bool = False,
) -> tuple[CoordinatorDesk, CoordinatorService]:
    """Return a desk, and the service that makes it available at *listen*."""
    from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
    from simcluster_backends.sockets.coordinator.service import CoordinatorService

    desk = CoordinatorDesk(dead_s, time.monotonic)
    secure = tls_of_coordinator(Path(tls)) if tls is not None else None
    return desk, CoordinatorService(listen, token, desk, hosts, secure, told=told, login=login)
