"""Report a run to a coordinator: one made here for this run, one at a URL, or none.

If the coordinator does not answer, a warning is logged and the run continues.
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
from typing import TYPE_CHECKING, Any, TypeAlias

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

Post: TypeAlias = Callable[[str, Any], Awaitable[dict[str, Any]]]
"""Makes a call of a coordinator, by its path and content, and returns the answer. Raises RunError."""


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
    """The reports of all attempts of *job* to the coordinator that *post* calls and to the job's watcher, if given."""

    def __init__(self, job: ClusterJob, post: Post | None, interval_s: float) -> None:
        self._job, self._post, self._interval_s = job, post, interval_s
        self._watcher, self._follower = job.watcher, job.follower
        self._attempt = 0
        self._warned = self._known = False
        self._run: RunInfo | None = None
        self._last: Telemetry | None = None

    async def begin(self, rendezvous: str) -> None:
        """Report a new attempt; its nodes meet at *rendezvous*."""
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
        """Report at every interval until cancelled. *leave* is called with the nodes that are asked to leave."""
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
        """Make a call of the coordinator; return the nodes that it asks to leave.

        One that does not know the run is told of its beginning before its telemetry.
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
    """Return the experiment as YAML, cut off at its limit."""
    try:
        text = yaml.safe_dump(json.loads(config_json), sort_keys=False, allow_unicode=True)
    except ValueError:
        text = config_json
    return text if len(text) <= CONFIG_CHARACTERS else f"{text[: CONFIG_CHARACTERS - 40]}\n# and more: see config.yaml"


def show_report(job: ClusterJob, report: Path) -> None:
    """Send the *report* of a run that has ended to its coordinator elsewhere, whose page then has a link to it.

    A coordinator that does not take it is logged.
    """
    options, _ = read_options(job)
    if options.coordinator is None or not is_elsewhere(options.coordinator):
        return  # one started for the run ended with it
    from simcluster_backends.sockets.coordinator.client import Client

    token = read_token(Path(options.token_file or ""))
    client = Client(options.coordinator, token, tls=options.tls, plain_http=options.plain_http)
    try:
        client.post("/runs/report", {"page": report.read_text(encoding="utf-8")})
    except RunError as error:
        log.warning("%s; its page has no link to the report", error)


@asynccontextmanager
async def reporting(job: ClusterJob, options: SocketOptions) -> AsyncIterator[Reporter]:
    """Yield a reporter for *job*, with its coordinator if *options* ask for one here. Raise UsageError, RunError.

    A coordinator elsewhere that would refuse the run's calls is refused at once.
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
            raise UsageError(Problem("coordinator", error.found, error.expected)) from None
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
    """Run a standalone coordinator at *listen* until it is interrupted; *told* is called with lines for the terminal.

    It also answers to *hosts*; it uses TLS if *tls*, a directory with its certificate, is given. With *login* its page
    needs a link on loopback, too. Raise UsageError with all problems.
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
    """Return a server of another application under the coordinator's rules. Raise UsageError, naming *key*."""
    check_coordinator(listen, tls, plain_http, key)
    from simcluster_backends.sockets.coordinator.service import MOST_CONNECTIONS, AppServer

    secure = tls_of_coordinator(Path(tls)) if tls is not None else None
    return AppServer(listen, app_for, hosts, secure, key, connections or MOST_CONNECTIONS)


def _to_terminal(name: str, line: str) -> None:
    """Print a login link where a run has no other output: it belongs in no log."""
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
    """Return (a desk, the service that answers for it)."""
    from simcluster_backends.sockets.coordinator.desk import CoordinatorDesk
    from simcluster_backends.sockets.coordinator.service import CoordinatorService

    desk = CoordinatorDesk(dead_s, time.monotonic)
    secure = tls_of_coordinator(Path(tls)) if tls is not None else None
    return desk, CoordinatorService(listen, token, desk, hosts, secure, told=told, login=login)
