"""A node's process: join a launcher, connect to all peers, run the program, hand in its record."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from simcluster.documents.user_code import look_below
from simcluster.errors import UsageError
from simcluster.fault_plans.kinds import cut_off
from simcluster.logs import setup as logs
from simcluster.process.intra_op import one_thread
from simcluster.process.kernels import heed_portable
from simcluster.process.memory import memory_bytes
from simcluster.process.signals import kill
from simcluster.process.unawaited import unawaited_noticed
from simcluster.runs.doubts import NOT_AWAITED
from simcluster.runs.event_notes import Notes
from simcluster.runs.event_order import EventKind
from simcluster.runs.record import NodeRecord, kept_spans
from simcluster.runs.recorder import Recorder
from simcluster.runs.words import plural
from simcluster_backends.common.event_loop import end_programs_tasks, run_to_its_end
from simcluster_backends.common.failure import LEFT, Failure, failure_of, first_of
from simcluster_backends.common.narrator import Narrator
from simcluster_backends.common.shortcuts import kept_shortcuts
from simcluster_backends.sockets.net.addresses import is_wildcard, open_socket, parse_endpoint
from simcluster_backends.sockets.net.tls import Tls, read_tls
from simcluster_backends.sockets.node.control_lane import JOIN_S, ControlLane, LauncherChannel
from simcluster_backends.sockets.node.cuts import CutFollower, follow_resets
from simcluster_backends.sockets.node.member import SocketMember
from simcluster_backends.sockets.node.mesh import Mesh
from simcluster_backends.sockets.node.order import NotedChannel, loop_factory
from simcluster_backends.sockets.node.report import Pulse, Reports, pieces_of
from simcluster_backends.sockets.node.shutdown_notice import Notice, seen_off
from simcluster_backends.sockets.node.transport import SocketTransport
from simcluster_backends.sockets.wire import messages as wire
from simcluster_backends.sockets.wire.frame import MESSAGE_LIMIT_BYTES
from simcluster_backends.sockets.wire.keys import KEY_BYTES
from simcluster_backends.sockets.wire.reader import FrameLimits

log = logging.getLogger("simcluster.node")

NAMED = 8
"""Limit on the names of the nodes that a line says to wait for."""


def join(
    name: str,
    rendezvous: str,
    key: bytes,
    listen: str = "127.0.0.1:0",
    *,
    files: str | None = None,
    tls: str | None = None,
    on_left: Callable[[], object] = lambda: None,
    tells: bool = True,
) -> int:
    """Run as node *name* of the launcher at *rendezvous*, "host:port"; return the exit code.

    Peers reach this node at *listen*; port 0 is any free one. If a launcher has sent user code, it
    is below the directory *files*. With TLS, the directory *tls* has this node's certificate and
    key, and the CA's certificate. The exit code is 0 if this node ended well or left as ordered,
    otherwise 1. *on_left* is called if it left. *tells*: whether it logs whom it waits for, which
    nobody reads of a node that a launcher has started. Raise UsageError for a bad address, key or
    certificate. Raise HandshakeRefused, ProtocolError or RunError if the launcher is unreachable or
    refuses this node.
    """
    host, port = parse_endpoint(rendezvous, "rendezvous")
    own = parse_endpoint(listen, "listen")
    if is_wildcard(own[0]):
        raise UsageError("listen", listen, "one address, at which the other nodes reach this one")
    if len(key) < KEY_BYTES:
        raise UsageError("key", f"{len(key)} bytes", f"at least {KEY_BYTES}")
    if files is not None:
        look_below(Path(files))
    secure = read_tls(Path(tls), name) if tls is not None else None
    with open_socket(*own, "listen") as listening:
        lane = ControlLane(name, host, port, key, secure)

        async def live() -> Failure | None:
            return await _NodeRun(lane, job, key, listening, secure, tells).live()

        try:
            job = lane.job.result(timeout=JOIN_S + 10)
            logs.log_as_node(logs.LogSettings(job.log_format, job.log_level, job.loki, "node", job.title, job.rank))
            others = [other for other in job.names if other != name]
            if tells:
                log.info("%s: is rank %d of %d%s", name, job.rank, len(job.names), _waits_for(others))
            with one_thread():
                loops = loop_factory(job.uvloop, counts=job.order)
                failure = run_to_its_end(live(), loops)
            if failure is not None and failure.kind == LEFT:
                on_left()
                return 0
            return 0 if failure is None else 1
        finally:
            lane.close()
            logs.close()


def _waits_for(others: Sequence[str]) -> str:
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return f"; waits for {', '.join(others[:NAMED])}{more}" if others else ""


class _NodeRun:
    """The run of *job* by this node, from its connections to its outcome."""

    def __init__(
        self, lane: ControlLane, job: wire.Job, key: bytes, listening: socket.socket, tls: Tls | None, tells: bool
    ) -> None:
        self.lane = lane
        self.job = job
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._tells = tells
        self._started_s: float | None = None
        self.recorder = Recorder(job.rank, job.names[job.rank], self._now, kept_spans(len(job.names)))
        self.recorder.losses_are_planned = False
        self.notes = Notes(self._now) if job.order else None
        self.member = SocketMember(
            job.rank, job.names, self.recorder, inbox_bytes=job.inbox_bytes, slow=job.slow, notes=self.notes
        )
        kept = kept_shortcuts(job.shortcuts)
        limits_B = job.body_limit_bytes, job.message_limits
        self._transport = SocketTransport(
            self.member, job.seed, body_limit_bytes=limits_B[0], message_limits=limits_B[1], kept=kept
        )
        self._cuts = CutFollower(job.dead_s, hold=self.member.hold, give_up=self.member.give_up)
        self._resets: list[asyncio.TimerHandle] = []
        most_bytes = job.message_limits[job.rank] if job.message_limits else MESSAGE_LIMIT_BYTES
        limits = FrameLimits(body_bytes=job.body_limit_bytes, message_bytes=min(most_bytes, memory_bytes()))
        self.mesh = Mesh(self.member, key, job.run, job.config, limits, tls, job.dead_s, shares="memory" in kept)
        self._safekeeping = LauncherChannel(lane, self.member.device)
        self._addresses: asyncio.Future[wire.Addresses] = self._loop.create_future()
        self._go: asyncio.Future[wire.GoOrder] = self._loop.create_future()
        self._leave = asyncio.Event()
        self._notice = Notice(self.recorder, self.notes)
        self._part: asyncio.Task[NodeRecord] | None = None
        self._stopped = ""
        self._narrator = Narrator(self.member.activity)
        self._reports = Reports(self.member, Pulse(self._loop, job.heartbeat_s), self._narrator)
        if job.report_at:
            self.recorder.on_step = lambda step: lane.report() if step in job.report_at else None

    async def live(self) -> Failure | None:
        """Run the node to its end; return its failure, or None if it ended well."""
        self._part = asyncio.create_task(self._take_part())
        self.lane.serve(
            self._from_lane, self._launcher_lost, lambda: self._reports.next(has_begun=self._started_s is not None)
        )
        failure = None
        try:
            record = await self._part
            end_programs_tasks()
            self.member.finish()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failure = self._failure_of(error)
            end_programs_tasks()
            record = self.recorder.record
            if record.finished_s is None:
                record = self.recorder.finish(None)
            if failure.kind == LEFT:
                self.member.finish(failure.text)
            else:
                await self.member.close()
        self._notice.over()
        self.lane.hand_in(pieces_of(record), lambda lane_bytes: self._reports.last(record, failure, lane_bytes))
        await self._leave.wait()
        if failure is not None and failure.kind == LEFT:
            await seen_off(self.member.links.values())
        self._cuts.cancel()
        for timer in self._resets:
            timer.cancel()
        await self.mesh.listener.close()
        await self.member.close()
        return failure

    async def _take_part(self) -> NodeRecord:
        job, mesh = self.job, self.mesh
        heed_portable({"portable": job.portable})
        module_name, _, function = job.program.partition(":")
        module = importlib.import_module(module_name)
        program = getattr(module, function)
        prepare = getattr(module, "prepare", lambda config_json: None)
        held: list[str] | None = None
        await mesh.listener.start(self._listening)
        if job.late:  # prepare before connecting: the others are at work, and would wait
            held = prepare(job.config_json)
        self.lane.send(wire.ListenAddress(mesh.listener.host, mesh.listener.port))
        found = await self._addresses
        self.recorder.incarnation = found.incarnation
        if found.incarnation:
            await mesh.come_late(found.incarnation, found.addresses, found.gone, job.start_s)
        else:
            await mesh.connect(found.addresses, job.start_s, found.gone)
        if not job.late:
            held = prepare(job.config_json)
        self.lane.send(wire.ConnectionReport(held or []))
        at_s = (await self._go).at_s
        if self._tells:
            log.info("%s: begins, connected to %s", self.recorder.record.name, plural(len(self.member.links), "node"))
        kept = self._safekeeping
        if job.keeps:
            self.recorder.channel = kept if self.notes is None else NotedChannel(kept, self.notes)
        self.recorder.restored = await kept.initial_shard() if job.resumes else None
        self._started_s = time.perf_counter() - at_s
        self._cuts.follow(job.holds, cut_off(job.dead_s), at_s)
        self._resets = follow_resets(job.resets, reset=self.member.reset, at_s=at_s)
        self._notice.heed_sigterm()
        self._narrator.begin()
        if self.notes is not None:
            self.notes.begin()
        try:
            with unawaited_noticed(partial(self.recorder.record.notice, NOT_AWAITED)):
                record = await program(self._transport, self.recorder, job.config_json)
        finally:
            if self.notes is not None:
                self.notes.end()
            self._narrator.end()
        if not isinstance(record, NodeRecord):
            raise TypeError(f"{job.program} returned {type(record).__name__}, not a NodeRecord")
        return record

    def _failure_of(self, error: BaseException) -> Failure:
        """Return the failure to report for *error*, and print its details, which go to the log."""
        if self._stopped and isinstance(first_of(error), asyncio.CancelledError):
            return Failure("stopped", self._stopped)
        failure = failure_of(error, began=self._started_s is not None)
        if failure.details:
            print(failure.details, flush=True)
        return failure

    def _now(self) -> float:
        return 0.0 if self._started_s is None else time.perf_counter() - self._started_s

    # messages from the launcher, in the lane's thread

    def _from_lane(self, message: wire.FromLauncher) -> None:
        if isinstance(message, wire.CrashOrder):
            kill(os.getpid())
        self._soon(self._receive, message)

    def _launcher_lost(self, reason: str) -> None:
        self._soon(self._give_up, f"the launcher is gone: {reason}")

    def _give_up(self, reason: str) -> None:
        """End without a launcher, for *reason*, which only the log can show."""
        if not self._leave.is_set():
            print(reason, file=sys.stderr, flush=True)
        self._receive(wire.StopOrder(reason))
        self._leave.set()

    def _soon(self, action: Callable[..., object], *given: object) -> None:
        """Call *action* in the node's loop, unless it is closed: the lane's thread outlives it."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action, *given)

    # messages from the launcher, in the node's loop

    def _receive(self, message: wire.FromLauncher) -> None:
        match message:
            case wire.Addresses() if not self._addresses.done():
                self._addresses.set_result(message)
            case wire.GoOrder() if not self._go.done():
                self._go.set_result(message)
            case wire.PeerGone(rank, reason, incarnation):
                if self._addresses.done():  # nodes that went earlier are listed in Addresses
                    self.mesh.lose(rank, reason)
                self.member.expect_end(rank, reason, incarnation)
            case wire.LeaveOrder():
                self._notice.give(message.notice_s)
            case wire.CutOrder():
                self._cuts.begin(message)
            case wire.HealOrder():
                self._cuts.end(message.number)
            case wire.StopOrder():
                self._stopped = self._stopped or message.reason
                if self._part is not None:
                    if self.notes is not None:
                        self.notes.note(EventKind.STOPPED, 0)
                    self._part.cancel()
            case wire.ShardReply():
                self._safekeeping.stored()
            case wire.CheckpointPiece():
                self._safekeeping.hear(message)
            case wire.ExitOrder():
                self._leave.set()
