"""A simulated cluster: start and end all nodes in one loop, and describe a deadlock."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from simcluster.errors import ABSENT, ENDED, Deadlock, Left, NeverFinished
from simcluster.fault_plans.kinds import Fault, never_restarted, too_late
from simcluster.process.interrupts import PATIENCE_S, CtrlC
from simcluster.runs.record import kept_spans
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.inbox import INBOX_BYTES
from simcluster_backends.common.shortcuts import kept_shortcuts
from simcluster_backends.common.waiting import wait_in_words, waiting_at
from simcluster_backends.sim.devices import DeviceModel
from simcluster_backends.sim.lazy_nodes import RestedTransport
from simcluster_backends.sim.lookahead import ScheduleEntrants
from simcluster_backends.sim.loop.clock import Endless, collected_rarely
from simcluster_backends.sim.loop.event_loop import LoopDrained, SimLoop, SimTask
from simcluster_backends.sim.member import SimMember
from simcluster_backends.sim.members import Members
from simcluster_backends.sim.membership import Departure, SimMembership
from simcluster_backends.sim.network.flows import Network
from simcluster_backends.sim.network.models import MODELS
from simcluster_backends.sim.network.routes import ChannelRoutes
from simcluster_backends.sim.streams import Streams
from simcluster_backends.sim.transport import SimTransport

if TYPE_CHECKING:
    from simcluster.topology import Topology

WORK_S = 5.0
"""Grace period for work in threads after Ctrl-C; a second Ctrl-C ends it early."""

Body = Callable[[SimTransport], Awaitable[Any]]


class Disturbance(Protocol):
    """The faults of a run: see simcluster_backends.sim.faults."""

    def attach(self, cluster: SimCluster) -> None: ...

    def schedule(self) -> None: ...

    def on_left(self, node: SimMember) -> None: ...


class SimCluster:
    """The workers of *topology*, in rank order, subject to *faults*.

    *inbox_bytes* and *model* default to the topology's. With *rests*, the node of each rank except
    0 is created only when a message is first sent to it. For *shortcuts*, see common/shortcuts.py.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int = 0,
        *,
        inbox_bytes: int | None = None,
        model: str | None = None,
        threads: int = 1,
        faults: Disturbance | None = None,
        rests: bool = False,
        shortcuts: bool | str = True,
    ) -> None:
        self.topology = topology
        self.seed = seed
        self._kept = kept_shortcuts(shortcuts)
        self._rests = rests and "lazy" in self._kept
        # SimLoop lacks some methods on purpose: a call that would leave the simulation raises.
        self.loop = SimLoop(threads, len(topology.workers))  # type: ignore[abstract]
        self.network = Network(self.loop.clock)
        self.routes = ChannelRoutes(topology, seed, self.loop.clock, self.network, MODELS[model or topology.network])
        self.membership = SimMembership(len(topology.workers), self._latency_s)
        self.members = Members(len(topology.workers), self._first)
        limits_B = (inbox_bytes, topology.inbox_bytes, INBOX_BYTES)
        limit_B = next(given_B for given_B in limits_B if given_B is not None)
        self.streams = Streams(self.loop.clock, self.network, self.routes, self.membership, self.members, limit_B)
        self.tasks: dict[int, SimTask[Any]] = {}
        self.failures: list[tuple[SimMember, BaseException]] = []  # exceptions raised by bodies, in order of time
        # Rank -> reason, for ranks that the fault plan killed or has yet to start, or that left.
        self.gone: dict[int, str] = {}
        self.has_left: set[int] = set()  # ranks that have left on request
        self.faults = faults
        self.worlds: Callable[[], AbstractContextManager[None]] = nullcontext  # entered while nodes run
        self._bodies: Sequence[Body] = ()
        self._returns: dict[int, asyncio.Future[None]] = {}  # ranks that will be restarted
        self._ending = False
        self._all_here = True
        self._prepare: Callable[[SimMember], object] = lambda member: None
        self._context: contextvars.Context | None = None  # the run's context, once nodes have begun
        for rank in range(1 if self._rests else len(topology.workers)):
            self.members[rank]
        self.together = ScheduleEntrants(self.loop, self.members, self.streams, self.membership, self.routes)
        if faults is not None:
            faults.attach(self)

    def run(self, bodies: Sequence[Body]) -> list[Any]:
        """Run body i as rank i to the end; return each body's result or exception.

        Raise Deadlock if nothing can happen any more, and NeverFinished if there is no progress. On
        Ctrl-C, end all bodies and raise KeyboardInterrupt.
        """
        assert len(bodies) == len(self.members), f"{len(bodies)} bodies for {len(self.members)} nodes"
        self._bodies = bodies
        with CtrlC(self.loop.interrupt, PATIENCE_S) as ctrl_c:
            try:
                self.tasks = {member.rank: self._begin(member) for member in self.members}
                self._context = contextvars.copy_context()
                if self.faults is not None:
                    self.faults.schedule()
                with self.worlds(), collected_rarely():
                    while left := [
                        future for future in (*self.tasks.values(), *self._returns.values()) if not future.done()
                    ]:
                        # A sys.exit() stops asyncio's loop: start it again. SystemExit is raised
                        # again in the task that awaits the one that called sys.exit().
                        with suppress(SystemExit):
                            self.loop.run_until_complete(asyncio.wait(left))
                self.streams.check_balance()
                cancelled = asyncio.CancelledError("cancelled")
                ends = [self.tasks[rank] for rank in sorted(self.tasks)]
                return [cancelled if task.cancelled() else task.exception() or task.result() for task in ends]
            except LoopDrained as drained:
                away = [
                    f"{self.members[rank].name}, {never_restarted(self.gone[rank])}" for rank in sorted(self._returns)
                ]
                why = "; ".join(away) or str(drained) or "nothing can happen any more"
                what = f"deadlock at {self.loop.time():g} s: {why}"
                raise Deadlock(what, self._waits()) from None
            except Endless as endless:
                what = f"{endless} at {self.loop.time():g} s"
                if endless.at_once:
                    what += ", and no time passes: a loop over `asyncio.sleep(0)` lets nothing else happen"
                raise NeverFinished(what, self._waits()) from None
            except KeyboardInterrupt:
                ctrl_c.heard()
                for member in self.members:
                    member.recorder.is_interrupted = True
                self.loop.workers.close(within_s=WORK_S)  # limited, since work may never end
                raise
            finally:
                self._end_all()

    def prepare(self, prepare: Callable[[SimMember], object]) -> None:
        """Call *prepare* with each node before it begins."""
        self._prepare = prepare
        for member in self.members:
            prepare(member)

    def lives(self, rank: int) -> bool:
        """Return whether *rank* has neither ended nor died."""
        return rank not in self.membership.departed

    def living(self) -> list[SimMember]:
        """Return the live nodes, by rank."""
        return [member for member in self.members if self.lives(member.rank)]

    def crash(self, rank: int, reason: str, fault: Fault | None = None, *, returns: bool = False) -> None:
        """Kill the live *rank* abruptly; *returns* says whether `revive` will be called.

        Peers notice the end of the process one latency later, as if by a TCP FIN.
        """
        member = self.members[rank]
        member.die(fault)
        member.recorder.record.ended_well = False  # its result is lost with its process
        self.gone[rank] = reason
        if returns:
            self._returns[rank] = self.loop.create_future()
        self._cancel(member)
        self.loop.frozen.thaw(member)
        member.break_off(asyncio.CancelledError)
        self._depart(member, reason)

    def leave_out(self, rank: int, fault: Fault) -> None:
        """Keep *rank* absent from the start until `revive`; no peer is notified of a loss.

        Call this before any node begins."""
        self.crash(rank, ABSENT, fault, returns=True)
        for member in self.members:
            member.inbox.misses_from_the_start(rank, ABSENT)

    def revive(self, rank: int) -> None:
        """Start *rank* as a new incarnation, unless all others are gone and one ended well."""
        self._returns.pop(rank).set_result(None)
        departed = self.membership.departed
        if len(departed) == len(self.members) and any(gone.reason == ENDED for gone in departed.values()):
            self.gone[rank] = too_late(self.gone[rank])
            return
        old = self.members[rank]
        del self.gone[rank]
        self.membership.returns(rank)
        self.streams.retire(rank)
        member = self.members[rank] = self._member(rank, old.device, old.recorder)
        member.on_step = old.on_step
        member.recorder.incarnation, member.recorder.told_to_leave = self.membership.incarnation(rank), False
        for absent, departure in self.membership.departed.items():
            if departure.reason == ABSENT:
                member.inbox.misses_from_the_start(absent, ABSENT)
        self.tasks[rank] = self._begin(member)
        for peer in self.living():
            if peer is not member:
                arrival_s = self.loop.time() + self._latency_s(rank, peer.rank, self.loop.time())
                self.loop.clock.alarm_at(arrival_s, partial(peer.welcome, rank), member.recorder.incarnation)

    def latency_s(self, source: int, to: int, time_s: float) -> float:
        """Return the latency from *source* to *to* at *time_s*, even if a node does not exist."""
        names = self.topology.workers
        return self.routes.latency_s(names[source], names[to], time_s)

    def _latency_s(self, source: int, to: int, time_s: float) -> float:
        stream = self.streams.if_used(source, to)
        return stream.way.latency_at(time_s) if stream is not None else self.latency_s(source, to, time_s)

    def _member(self, rank: int, device: DeviceModel, recorder: Recorder) -> SimMember:
        names = self.topology.workers
        buffer_B = self.topology.nodes[names[rank]].send_buffer_bytes
        cores = self.routes.cores(names[rank])
        return SimMember(rank, names, self.loop, self.streams, self.membership, device, recorder, buffer_B, cores)

    def _first(self, rank: int) -> SimMember:
        """Make the first incarnation of *rank*. If the run has begun, begin the rank, too."""
        name = self.topology.workers[rank]
        recorder = Recorder(rank, name, self.loop.time, kept_spans(len(self.topology.workers)))
        member = self._member(rank, DeviceModel(self.topology.device(name), self.seed, name), recorder)
        self._prepare(member)
        if self._context is not None:
            member.rested, member.born_s = True, 0.0
            self.tasks[rank] = self._context.copy().run(self._begin, member)
        return member

    def _begin(self, member: SimMember) -> SimTask[Any]:
        return self.loop.begin(member, self._live(member), f"rank {member.rank} ({member.name})")

    async def _live(self, member: SimMember) -> Any:
        """Run *member*'s body, then record the node's departure: as failed if the body raises."""
        node = (RestedTransport if member.rested else SimTransport)(member, self.seed, self.together, self._kept)
        reason = ENDED
        try:
            try:
                result = await self._bodies[member.rank](node)
            except Left as left:
                result, reason = left, str(left)
            if self.together.entered:
                await self.together.leave()
            self._cancel(member, sparing=asyncio.current_task(self.loop))
            # First drop all messages to this node, and only then flush its send buffer. Otherwise
            # two nodes with full inboxes that hold messages for each other would deadlock.
            member.inbox.close()
            for peer in self._living(self.streams.sources(member.rank)):
                peer.pump(member.rank)
            if member.buffer is not None:
                await member.buffer.flush()
        except BaseException as error:
            if member.alive and not self._ending:
                if self.together.entered:
                    await self.together.leave()
                member.die()
                self.failures.append((member, error))
                self._cancel(member, sparing=asyncio.current_task(self.loop))
                self._depart(member, f"failed: {type(error).__name__}: {error}")
            raise
        if reason != ENDED:
            member.die()
            self.gone[member.rank] = reason
            self.has_left.add(member.rank)
            if self.faults is not None:
                self.faults.on_left(member)
        self._depart(member, reason)
        return result

    def _cancel(self, member: SimMember, sparing: object = None) -> None:
        """Cancel the tasks of *member* except *sparing*."""
        for task in self.loop.unfinished_of(member):
            if task is not sparing:
                task.cancel()

    def _depart(self, member: SimMember, reason: str) -> None:
        """Record that *member* is gone. Peers learn of this after all messages that it has sent."""
        # The first departure concerns all ranks: the membership knows no listeners before it.
        concerned = {peer.rank for peer in self.members} if self._all_here else self.streams.sources(member.rank)
        self._all_here = False
        self.membership.departs(member.rank, Departure(self.loop.time(), reason))
        self.streams.drain(member.rank)
        any_too = self.membership.concerns_any(self.streams.gated)
        for peer in self._living(concerned | self.membership.listeners(member.rank, any_too)):
            peer.expect_news_of(member.rank)
        if self._rests and member.rank == 0 and (witness := self.members.first_resting()) is not None:
            # Make one resting rank, which ends now: `records_of` copies its record for the others.
            self.members[witness]

    def _living(self, ranks: Iterable[int]) -> list[SimMember]:
        return [self.members[rank] for rank in sorted(ranks) if self.lives(rank)]

    def _end_all(self) -> None:
        """Cancel all remaining tasks, so that none is destroyed while pending."""
        self._ending = True
        for _ in range(100):  # a task may suppress a cancellation once or twice
            left = self.loop.unfinished()
            if not left:
                break
            for task in left:
                task.cancel()
            self.loop.call_soon(self.loop.stop)
            with suppress(SystemExit, KeyboardInterrupt):  # a TaskGroup may raise either again
                self.loop.run_forever()
        for task in left:
            # The task ignores cancellation, or lost its next step to a Ctrl-C. Close its coroutine
            # now: at interpreter exit, it might use tensors that are being destroyed.
            with suppress(BaseException):
                if (coroutine := task.get_coro()) is not None:
                    coroutine.close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for task in self.tasks.values():
            if task.done() and not task.cancelled():
                task.exception()  # mark it as retrieved, so that asyncio does not log it
        self.loop.close()

    def _waits(self) -> list[str]:
        """Return a line per unfinished rank: what it waits for, and where in the code."""
        lines = []
        for node in self.members:
            if not (task := self.tasks[node.rank]).done():
                places = waiting_at([task, *self.loop.unfinished_of(node)])
                label = f"rank {node.rank} ({node.name})"
                lines.append(wait_in_words(label, node.waits(), places, node.inbox.unread()))
        return lines
