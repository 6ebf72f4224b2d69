"""Report a run to a coordinator: one made here for this run, one at a URL, or none.

If the coordinator does not answer, a warning is logged and the run continues.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from simcluster.errors import Problem, RunError, UsageError
from simcluster.experiment.job import ClusterJob
from simcluster.watching.telling import run_info
from simcluster_backends.sockets.launcher.settings import MOST_DEAD_S, Options, check_coordinator, is_elsewhere
from simcluster_backends.sockets.net.addresses import facing, is_loopback, parse_endpoint
from simcluster_backends.sockets.net.tls import tls_of_coordinator
from simcluster_backends.sockets.wire.keys import read_token

if TYPE_CHECKING:
    from simcluster.watching.board import RunInfo, Telemetry

log = logging.getLogger("simcluster.sockets")


def host_of(coordinator: str) -> str | None:
    """Return this machine's address for nodes that know *coordinator*; None if there is none."""
    if not is_elsewhere(coordinator):
        return parse_endpoint(coordinator, "coordinator")[0]
    import urllib.parse

    host = urllib.parse.urlsplit(coordinator).hostname or ""
    return host if is_loopback(host) else facing(host)


class Answer(NamedTuple):
    """The coordinator's answer: whether it *knows* the run, and the nodes that it asks to *leave*."""

    knows: bool
    leave: frozenset[str]

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Answer:
        names = answer.get("leave")
        return cls(bool(answer["running"]), frozenset(map(str, names if isinstance(names, list) else ())))


class Coordinator(Protocol):
    """The calls that a run makes. Each may raise RunError."""

    async def begin(self, run: RunInfo) -> None: ...

    async def telemetry(self, telemetry: Telemetry) -> Answer:
        """Report the state of the run."""
        ...

    async def end(self, error: str) -> None: ...


class Here:
    """The desk of a coordinator in this process."""

    def __init__(self, desk: Any) -> None:
        self._desk = desk

    async def begin(self, run: RunInfo) -> None:
        self._desk.begin(run)

    async def telemetry(self, telemetry: Telemetry) -> Answer:
        return Answer.read(self._desk.telemetry(telemetry))

    async def end(self, error: str) -> None:
        self._desk.end(error)


class Elsewhere:
    """A coordinator called over HTTP, in a thread, so that a slow one does not block the loop."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def begin(self, run: RunInfo) -> None:
        await asyncio.to_thread(self._client.post, "/runs", run.model_dump())

    async def telemetry(self, telemetry: Telemetry) -> Answer:
        from simcluster.watching.board import plain

        return Answer.read(await asyncio.to_thread(self._client.post, "/telemetry", plain(telemetry.model_dump())))

    async def end(self, error: str) -> None:
        await asyncio.to_thread(self._client.post, "/runs/end", {"error": error[:10_000]})


class Reporter:
    """The reports of all attempts of *job* to *coordinator* and to the job's watcher, if given."""

    def __init__(self, job: ClusterJob, coordinator: Coordinator | None, interval_s: float) -> None:
        self._job, self._coordinator, self._interval_s = job, coordinator, interval_s
        self._watcher = job.watcher
        self._attempt = 0
        self._warned = self._known = False
        self._run: RunInfo | None = None
        self._last: Telemetry | None = None

    async def begin(self, rendezvous: str) -> None:
        """Report a new attempt; its nodes meet at *rendezvous*."""
        self._attempt += 1
        job, drawn = self._job, self._job.topology if self._coordinator is not None else None
        run = run_info(job.names, job.seed, job.about, "sockets", rendezvous, self._attempt, drawn=drawn)
        if self._watcher is not None:
            self._watcher.begin(run)
        self._run, self._known = run, False
        if self._coordinator is not None:
            await self._tell(self._begin(self._coordinator))

    async def run(
        self, telemetry: Callable[[], Telemetry], leave: Callable[[Collection[str]], object] = lambda names: None
    ) -> None:
        """Report at every interval until cancelled. *leave* is called with the nodes that are asked to leave."""
        while self._coordinator is not None or self._watcher is not None:
            if self._watcher is not None:
                self._watcher.look(telemetry)
            if self._coordinator is not None:
                await self._tell(self._telemetry(self._coordinator, telemetry(), leave))
            await asyncio.sleep(self._interval_s)

    async def last(self, telemetry: Callable[[], Telemetry]) -> None:
        """Report once more."""
        self._last = telemetry()
        if self._coordinator is not None:
            await self._tell(self._telemetry(self._coordinator, self._last))

    async def end(self, error: str) -> None:
        """Report the end of the run."""
        if self._watcher is not None:
            self._watcher.end(self._last, error)
        if self._coordinator is not None:
            await self._tell(self._coordinator.end(error))

    async def _begin(self, coordinator: Coordinator) -> None:
        if self._run is not None:
            await coordinator.begin(self._run)
            self._known = True

    async def _telemetry(
        self,
        coordinator: Coordinator,
        telemetry: Telemetry,
        leave: Callable[[Collection[str]], object] = lambda names: None,
    ) -> None:
        """Report *telemetry*; to a coordinator that does not know the run, also its beginning."""
        if not self._known:
            await self._begin(coordinator)
        answer = await coordinator.telemetry(telemetry)
        self._known = answer.knows
        if answer.leave:
            leave(answer.leave)

    async def _tell(self, call: Any) -> None:
        try:
            await call
            self._warned = False
        except RunError as error:
            if not self._warned:
                log.warning("%s; the run continues", error)
            self._warned = True


@asynccontextmanager
async def reporting(job: ClusterJob, options: Options) -> AsyncIterator[Reporter]:
    """Yield a reporter for *job*, with its coordinator if *options* ask for one here. Raise UsageError, RunError."""
    if options.coordinator is None:
        yield Reporter(job, None, options.heartbeat_s)
        return
    token = read_token(Path(options.token_file or ""))
    if is_elsewhere(options.coordinator):
        client = await asyncio.to_thread(_caller, options, token)
        yield Reporter(job, Elsewhere(client), options.heartbeat_s)
        return
    desk, service = _make(options.coordinator, token, options.dead_s, (), options.tls)
    service.start()
    log.info("coordinator at %s", service.url)
    if job.on_output is not None:
        job.on_output("coordinator", service.url)
    try:
        yield Reporter(job, Here(desk), options.heartbeat_s)
    finally:
        await asyncio.to_thread(service.close)


def _caller(options: Options, token: str) -> Any:
    """Return a client of the coordinator elsewhere. Raise UsageError at once if it refuses this run."""
    from simcluster_backends.sockets.coordinator.client import Client, NotAllowed

    assert options.coordinator is not None
    client = Client(options.coordinator, token, tls=options.tls, plain_http=options.plain_http)
    try:
        client.get("/training/ready")
    except NotAllowed as error:
        raise UsageError(Problem("coordinator", error.found, error.expected)) from None
    except RunError:
        pass  # not reachable yet: the warning comes when the run begins
    return client


def coordinate(
    listen: str,
    token_file: Path,
    dead_s: float,
    hosts: Sequence[str],
    told: Callable[[str], object],
    tls: str | None = None,
    plain_http: bool = False,
) -> None:
    """Run a standalone coordinator at *listen* until it is interrupted; *told* is called with its URL.

    It also answers to *hosts*; it uses TLS if *tls*, a directory with its certificate, is given. Raise UsageError with
    all problems.
    """
    problems = []
    try:
        check_coordinator(listen, tls, plain_http)
    except UsageError as error:
        problems += error.problems
    if not 0 < dead_s <= MOST_DEAD_S:
        problems.append(Problem("dead_s", f"{dead_s:g}", f"more than 0 and at most {MOST_DEAD_S:g} s"))
    if problems:
        raise UsageError(problems)
    _, service = _make(listen, read_token(token_file), dead_s, hosts, tls)
    told(service.url)
    try:
        service.run()
    finally:
        service.close()


def _make(listen: str, token: str, dead_s: float, hosts: Sequence[str], tls: str | None) -> tuple[Any, Any]:
    """Return (a desk, the service that answers for it)."""
    from simcluster_backends.sockets.coordinator.desk import Desk
    from simcluster_backends.sockets.coordinator.service import Service

    desk = Desk(dead_s, time.monotonic)
    secure = tls_of_coordinator(Path(tls)) if tls is not None else None
    return desk, Service(listen, token, desk, hosts, secure)
