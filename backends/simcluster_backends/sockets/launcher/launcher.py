"""Run one job: start or await its nodes, connect them, watch them, and always end them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from functools import partial

from simcluster.errors import ABSENT, NeverFinished, RunError, WorldFailed
from simcluster.experiment.restarts import Restarts
from simcluster.fault_plans.kinds import NOTICE_S
from simcluster.job import ClusterJob
from simcluster.runs.record import RunRecord
from simcluster.watching.board import Telemetry
from simcluster.watching.telling import link_telemetry
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sockets.launcher.admission import (
    LateJoiners,
    StartLimit,
    are_enough,
    begin_with,
    check_alike,
    missing,
    refusal,
)
from simcluster_backends.sockets.launcher.checkpoints import NodeShards
from simcluster_backends.sockets.launcher.departures import Departures
from simcluster_backends.sockets.launcher.faults import LauncherFaults
from simcluster_backends.sockets.launcher.node_handle import NodeHandle, members_of
from simcluster_backends.sockets.launcher.node_job import node_job
from simcluster_backends.sockets.launcher.reporting import Reporter, reporting
from simcluster_backends.sockets.launcher.settings import SocketOptions
from simcluster_backends.sockets.launcher.starters import Starters
from simcluster_backends.sockets.launcher.watchdog import Watch
from simcluster_backends.sockets.launcher.worlds import LauncherWorlds
from simcluster_backends.sockets.net.addresses import open_socket, show_endpoint
from simcluster_backends.sockets.net.connection import Connection
from simcluster_backends.sockets.net.listener import SocketListener
from simcluster_backends.sockets.net.tls import tls_of_launcher
from simcluster_backends.sockets.wire.frame import Frame
from simcluster_backends.sockets.wire.handshake import RUN_IS_OVER, Handshake, PeerIdentity
from simcluster_backends.sockets.wire.messages import Beat, GoOrder, LeaveOrder, NodeOutcome, ShardPiece, read_from_node

log = logging.getLogger("simcluster.sockets")


class Launcher:
    """The launcher of one run. `run` returns a record even of a failed run."""

    def __init__(self, job: ClusterJob, options: SocketOptions, key: bytes, reporter: Reporter) -> None:
        self.job = job
        self.options = options
        self._reporter = reporter
        self._key = key
        self._run_id = secrets.token_bytes(16)
        self.members = members_of(job)
        self._safekeeping = NodeShards(job.keeping, self.members)
        self._listener = SocketListener(self._handshake, self._joined, tls=tls_of_launcher(options.tls))
        self._starters = Starters(job, options, key, lambda member, code: self._departures.exited(member, code))
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._start_limit: StartLimit | None = None
        self._started_s: float | None = None
        self._given_up = False
        self._watch = Watch(
            self.members,
            options,
            beat=self._beat,
            on_silent=lambda member: self._departures.give_up_on(member),
            give_up=self._lose_patience,
            expects=lambda: bool(self._faults.away) or self._comers.any,
        )
        self._comers = LateJoiners(
            self.members,
            self._changed,
            start=lambda member: self._starters.start_again([member], self._where),
            kill=lambda member: self._starters.signal(member, "SIGKILL"),
            came=self._came,
            at_s=lambda: self._elapsed_s,
            patience_s=options.start_s,
            loop_s=options.loop_s,
        )
        self._faults = LauncherFaults(job, self.members, options.dead_s, self._starters.signal, self._comers.bring)
        self._worlds = LauncherWorlds(job, self.members, self._faults, options.dead_s, self._world_failed)
        self.verdict = Verdict(list(job.names), self._faults.planned, self._faults.cut_off)
        self._departures = Departures(
            self.members, self._changed, options.dead_s, self.verdict, self._faults, self._comers, self._starters,
            at_s=lambda: self._elapsed_s, revivals=options.revivals,
        )  # fmt: skip

    async def run(self) -> RunRecord:
        """Run the job to its end. Raise UsageError if it cannot listen at the rendezvous."""
        began_s = time.perf_counter()
        host, port = self.options.endpoint
        if "rendezvous" not in self.job.options:
            host = await self._starters.host() or host
        await self._listener.start(open_socket(host, port, "rendezvous"))
        await self._reporter.begin(self._where)
        watching = asyncio.create_task(self._watch.run())
        telling = asyncio.create_task(
            self._reporter.run(self._telemetry, lambda: [member.rows for member in self.members], self._ask_to_leave)
        )
        interrupted = True
        try:
            await self._start()
            await self._wait_until(self._is_over)
            interrupted = False
        except _GiveUp:
            interrupted = False
            await self._departures.stop(str(self.verdict.error))
        finally:
            watching.cancel()
            telling.cancel()
            self._faults.cancel()
            self._worlds.cancel()
            expected = {*self._faults.away, *(member.rank for member in self.members if member.is_coming)}
            await self._comers.close()
            await self._departures.end()
            await self._listener.close()
            await self._safekeeping.close()
            if interrupted:
                self._starters.logs.forget()
        await self._reporter.last(self._telemetry)
        for member in self.members:
            if member.gone is not None and not member.has_left:
                self.verdict.never_came(member.rank, member.gone, planned=member.rank in expected)
        nodes = [member.record() for member in self.members]
        elapsed_s = max((node.finished_s or 0.0 for node in nodes), default=0.0) or self._elapsed_s
        extra = {"lost": self.verdict.lost, "faults": self._faults.rows(elapsed_s, self.verdict.lost)}
        return RunRecord(nodes, elapsed_s, time.perf_counter() - began_s, self.verdict.error, extra)

    # the phases of a run

    async def _start(self) -> None:
        """Start the nodes, connect the founders with each other, and begin the run.

        Raise _GiveUp if that fails or takes too long.
        """
        founders: list[NodeHandle] = []
        for rank in self._faults.away:
            self.members[rank].gone = ABSENT
        try:
            async with asyncio.timeout(self.options.start_s) as limit:
                self._start_limit = StartLimit(limit, self.options.start_s, self.options.loop_s)
                await self._starters.start([member for member in self.members if member.gone is None], self._where)
                await self._wait_until(lambda: are_enough(self.members, self.options.min_workers))
                founders = begin_with(self.members)
                await self._wait_until(lambda: all(member.connected for member in founders))
                check_alike(founders)
        except TimeoutError:
            self.verdict.own = NeverFinished(
                f"the run at {self._where} did not start within {self.options.start_s:g} s",
                missing(self.members, founders) + self._listener.dropped_in_words,
            )
            raise _GiveUp from None
        except RunError as error:
            self.verdict.own = error
            raise _GiveUp from None
        finally:
            self._start_limit = None
        self._started_s = time.perf_counter()
        self._watch.start()
        for member in founders:
            member.tell(GoOrder())
        self._faults.start()
        self._comers.begin()
        self._worlds.start()

    def _is_over(self) -> bool:
        """Return whether all nodes have ended, and no late joiner can change the result."""
        decided = self.verdict.any_ended_well or self.verdict.is_lost
        to_come = self._faults.away or self._comers.any
        return all(member.ended for member in self.members) and (decided or not to_come)

    # events

    def _handshake(self) -> Handshake:
        def admit(peer: PeerIdentity) -> str | None:
            return RUN_IS_OVER if self._departures.has_begun_to_end else refusal(peer.name, self.members)

        me = PeerIdentity("control", "launcher", -1, self._run_id)
        return Handshake(self._key, me, accepts=True, admit=admit)

    def _joined(self, connection: Connection) -> None:
        member = self.members[self.job.names.index(connection.peer.name)]
        if member.connection is not None:  # two were admitted at the same time: keep the first
            connection.abort("the name is taken")
            return
        if member.gone is not None:
            self._comers.joined(member)
        member.connection, member.heard_s = connection, self._loop.time()
        connection.on_frame = partial(self._receive, member)
        connection.on_lost = partial(self._departures.left, member)
        late = self._started_s is not None
        member.tell(node_job(self.job, self.options, member.rank, self._run_id, late=late))
        self._safekeeping.welcome(member)

    def _receive(self, member: NodeHandle, frame: Frame) -> None:
        message, steps = read_from_node(frame), member.steps
        member.heard_s = self._loop.time()
        if isinstance(message, ShardPiece):
            self._safekeeping.hear(member, message)
            return
        if isinstance(message, NodeOutcome) and member.is_coming:
            self._comers.refused(member, message)
            return
        member.hear(message)
        if self._start_limit is not None and member.is_preparing:
            self._start_limit.postpone()
        if member.steps > steps:
            self._faults.on_step(member.rank, member.steps)
            self._note_progress(member)
        if isinstance(message, NodeOutcome):
            if message.failure is None:
                self.verdict.ended_well()
            else:
                self.verdict.failed(member.rank, message.failure, message.record.finished_s or 0.0)
                if member.has_left:
                    self._departures.let_go(member, message.failure.text)
                elif not self._departures.is_stopping and message.failure.kind != "peer_lost":
                    self._departures.tell_others(member, f"failed: {message.failure.text}")
        self._changed.set()

    def _note_progress(self, member: NodeHandle) -> None:
        if self.job.on_progress is not None:
            try:
                self.job.on_progress(member.rank, member.steps)
            except Exception:
                log.exception("on_progress raised; the run continues")

    def _ask_to_leave(self, names: Collection[str]) -> None:
        """Ask the nodes called *names* to leave, as SIGTERM does. Before the start, do nothing.

        The coordinator repeats the request until they have left.
        """
        for member in self.members:
            if self._started_s is not None and member.name in names and not member.ended:
                member.tell(LeaveOrder(NOTICE_S))

    def _came(self, member: NodeHandle, reason: str) -> None:
        self._departures.came(member, reason)
        self._worlds.came(member.rank)

    # giving up

    def _world_failed(self, error: WorldFailed) -> None:
        if self.verdict.error is None:
            self.verdict.own = error
        self._changed.set()

    def _lose_patience(self, headline: str) -> None:
        """Give up the run with the error *headline*, unless the verdict has an earlier error."""
        self._given_up = True
        if self.verdict.error is None:
            waits = [member.waits_in_words for member in self.members if not member.ended]
            self.verdict.own = NeverFinished(headline, waits)
        self._changed.set()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for *condition*. Raise _GiveUp as soon as the run cannot succeed any more."""
        while not condition():
            if self._hopeless():
                raise _GiveUp
            self._changed.clear()
            await self._changed.wait()

    def _hopeless(self) -> bool:
        """Return whether the run cannot succeed any more.

        After the start, a loss alone is no failure: the algorithm may survive it.
        """
        died_early = self._started_s is None and any(member.gone not in (None, ABSENT) for member in self.members)
        return self._given_up or self.verdict.own is not None or self.verdict.has_failed or died_early

    # descriptions and reports

    @property
    def _where(self) -> str:
        return show_endpoint(self._listener.host, self._listener.port)

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._started_s is None else time.perf_counter() - self._started_s

    def _telemetry(self) -> Telemetry:
        nodes = [member.telemetry(self._loop.time()) for member in self.members]
        links = link_telemetry(self.job.names, self.job.topology, {m.rank: m.sent_to for m in self.members})
        return Telemetry(elapsed_s=self._elapsed_s, nodes=nodes, links=links, faults=list(self._faults.log.rows()))

    def _beat(self) -> None:
        for member in self.members:
            member.tell(Beat())


class _GiveUp(Exception):
    """The run has failed; the verdict has the cause."""


async def run_job(job: ClusterJob, options: SocketOptions, key: bytes) -> RunRecord:
    """Run *job*, and restart it if it is lost and *options* allow it: see experiment.restarts.

    Raise UsageError if it cannot listen at the rendezvous, or the configuration is too long.
    """
    async with reporting(job, options) as reporter:
        restarts = Restarts(job, options.max_restarts)
        while restarts.again(record := await Launcher(restarts.job, options, key, reporter).run()):
            continue
        record = restarts.told(record)
        await reporter.end("" if record.error is None else str(record.error))
        return record
