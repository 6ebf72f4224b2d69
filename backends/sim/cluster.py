"""All nodes of a simulated cluster in one loop: starts them, ends them, and says who waits when nothing can happen.

This file knows nodes, streams and life and death. It must not know algorithms, experiments or files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from backends.sim.conservation import check_conservation
from backends.sim.deadlock import waits_of
from backends.sim.devices import DeviceModel
from backends.sim.faults import Faults
from backends.sim.lookahead import Ring
from backends.sim.loop.event_loop import Drained, Endless, SimLoop, SimTask
from backends.sim.loop.garbage import collected_rarely
from backends.sim.loop.suspended import owner_of_task
from backends.sim.membership import Departure, News
from backends.sim.network.flows import Network
from backends.sim.network.models import MODELS
from backends.sim.network.routes import PLAIN, Surroundings
from backends.sim.rendezvous import AskingNode, Rendezvous
from backends.sim.rough import RoughStream
from backends.sim.stream import INBOX_BYTES, Stream
from backends.sim.transport import SimTransport
from backends.sim.troubled import TroubledStream
from simcluster.errors import ENDED, Deadlock, Left, NeverFinished
from simcluster.fault_plans.kinds import ABSENT, DEAD_S, Fault
from simcluster.interrupts import PATIENCE_S, CtrlC
from simcluster.runs.record import Recorder, kept_spans

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster.topology import Topology

WORK_S = 5.0
"""How long work in threads may take to end after a Ctrl-C; one more cuts it short."""

Body = Callable[[SimTransport], Awaitable[Any]]


class Cluster:
    """The workers of *topology*, in rank order, with streams made when first used.

    *inbox_bytes* and *model* are the topology's, if they are not given. *faults* are what is to happen to it; *dead_s*
    is for how long a node may be silent or out of reach.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int = 0,
        *,
        inbox_bytes: int | None = None,
        model: str | None = None,
        threads: int = 1,
        faults: Sequence[Fault] = (),
        dead_s: float = DEAD_S,
    ) -> None:
        self.topology, self.seed = topology, seed
        self.inbox_bytes = _first(inbox_bytes, topology.inbox_bytes, INBOX_BYTES)
        self.loop = SimLoop(threads)  # type: ignore[abstract]  # refuses by name what leaves the simulated world
        self.network = Network(self.loop.clock)
        self.surroundings = Surroundings(
            topology, seed, self.loop.clock, self.network, MODELS[model or topology.network]
        )
        self.rendezvous = [Rendezvous() for _ in topology.workers if self.inbox_bytes == 0]
        self.news = News(self)
        self.faults = Faults(self, faults, dead_s)
        self._streams: dict[tuple[int, int], Stream] = {}
        self.tasks: list[SimTask[Any]] = []
        self.nodes: list[SimTransport] = []
        self.failures: list[tuple[SimTransport, BaseException]] = []  # what its body raised, in order of time
        self.gone: dict[int, str] = {}  # by the fault plan, dead, not there yet or told to leave, and why
        self.has_left = False  # somebody who was told to
        self._bodies: Sequence[Body] = ()
        self._returns: dict[int, asyncio.Future[None]] = {}  # of those who are to come back
        self._former: dict[int, list[SimTransport]] = {}  # earlier incarnations, by rank
        self._retired: list[Stream] = []  # from and to them
        self._unaccepted: dict[tuple[int, int], TroubledStream] = {}  # from new ones whose peers deal with old ones
        self._ending = False
        keep = kept_spans(len(topology.workers))
        for rank, name in enumerate(topology.workers):
            node = topology.nodes[name]
            assert node.device is not None, "a worker has a device"
            device = DeviceModel(node.device, seed, name)
            self.nodes.append(self._node(rank, device, Recorder(rank, name, self.loop.time, keep)))
        self._living = dict(enumerate(self.nodes))
        self.ring = Ring(self)

    def stream(self, source: int, to: int) -> Stream:
        """The stream between two ranks; the first use lays its route."""
        key = (source, to)
        if key not in self._streams:
            receiver = self.nodes[to]
            stream = self._streams[key] = self._lay(self.nodes[source], receiver)
            if self.lives(to) and receiver.known(source) != self.news.incarnation(source):
                _troubled(stream).stop()  # until the receiver deals with this incarnation
                self._unaccepted[key] = _troubled(stream)
            self.faults.meets(stream)
        return self._streams[key]

    def stream_to_former(self, source: int, to: int, incarnation: int) -> Stream:
        """Return a stream to a past incarnation of *to*, whose end is unknown to *source*: it drops every message."""
        stream = self._lay(self.nodes[source], self._former[to][incarnation])
        self._retired.append(stream)
        self.faults.meets(stream)
        return stream

    def streams(self) -> Iterable[Stream]:
        """Those that have been used, in order of first use."""
        return self._streams.values()

    def run(self, bodies: Sequence[Body]) -> list[Any]:
        """Runs body i as rank i to the end; returns each one's result, or the exception that it ended with.

        Raises Deadlock or NeverFinished if some body cannot, or does not, end; KeyboardInterrupt once all have been
        ended.
        """
        assert len(bodies) == len(self.nodes), f"{len(bodies)} bodies for {len(self.nodes)} nodes"
        self._bodies = bodies
        with CtrlC(self.loop.interrupt, PATIENCE_S) as ctrl_c:
            return self._run(ctrl_c)

    def _run(self, ctrl_c: CtrlC) -> list[Any]:
        try:
            self.tasks = [self._begin(node) for node in self.nodes]
            self.faults.schedule()
            with collected_rarely():
                self._run_tasks()
            check_conservation(self.nodes, [*self._streams.values(), *self._retired])
            return [_outcome(task) for task in self.tasks]
        except Drained:
            waits = waits_of(self)
            raise Deadlock(f"deadlock at {self.loop.time():g} s: nothing can happen any more", waits) from None
        except Endless:
            raise NeverFinished(
                f"no work done and nothing recorded for long at {self.loop.time():g} s", waits_of(self)
            ) from None
        except KeyboardInterrupt:
            ctrl_c.heard()
            for node in self.nodes:
                node.recorder.is_interrupted = True
            self.loop.workers.close(within_s=WORK_S)  # work may never end
            raise
        finally:
            self._end_all()

    def lives(self, rank: int) -> bool:
        """Whether *rank* has neither ended nor died."""
        return rank in self._living

    def living(self) -> list[SimTransport]:
        """Those that live, by rank."""
        return [self._living[rank] for rank in sorted(self._living)]

    def crash(self, rank: int, reason: str, fault: Fault | None = None, *, returns: bool = False) -> None:
        """*rank*, which lives, dies now, without a goodbye; *returns* is whether `revive` will be called.

        Its process's end reaches a peer one latency later, as a FIN does.
        """
        node = self.nodes[rank]
        node.die(fault)
        node.recorder.record.ended_well = False  # what it ended with is in a process that is gone
        self.gone[rank] = reason
        if returns:
            self._returns[rank] = self.loop.create_future()
        for task in self._tasks_of(node):
            task.cancel()
        self.loop.frozen.thaw(node)
        node.break_off(asyncio.CancelledError)
        self._announce(node, reason)

    def leave_out(self, rank: int, fault: Fault) -> None:
        """*rank* is not there from the start on, until `revive`: nobody has begun, and nobody hears of a loss."""
        self.crash(rank, ABSENT, fault, returns=True)
        for node in self.nodes:
            node.inbox.misses_from_the_start(rank, ABSENT)

    def revive(self, rank: int) -> None:
        """*rank*, which is to return, begins from the beginning, as another incarnation."""
        old = self.nodes[rank]
        self._former.setdefault(rank, []).append(old)
        del self.gone[rank]
        self.news.returns(rank)
        if self.rendezvous:
            self.rendezvous[rank] = Rendezvous()
        for key in [key for key in self._streams if rank in key]:
            self._retired.append(self._streams.pop(key))
            self._unaccepted.pop(key, None)
        node = self.nodes[rank] = self._living[rank] = self._node(rank, old.device, old.recorder)
        node.on_step = old.on_step
        node.recorder.incarnation, node.recorder.told_to_leave = self.news.incarnation(rank), False
        node.knows(self.news.incarnations())
        for absent in self.news.absent():
            node.inbox.misses_from_the_start(absent, ABSENT)
        self.tasks[rank] = self._begin(node)
        self._returns.pop(rank).set_result(None)
        for peer in self.living():
            if peer is not node:
                arrival_s = self.loop.time() + self.stream(rank, peer.rank).latency_s
                self.loop.clock.alarm_at(arrival_s, partial(peer.welcome, rank), node.recorder.incarnation)

    def accept(self, rank: int, by: int) -> None:
        """*by* deals with the present incarnation of *rank* from now on, and with none before."""
        for stream in self._retired:
            if (stream.sender.rank, stream.receiver.rank) == (rank, by):
                _troubled(stream).break_for(stream.sender.killed_by)
        self._open(rank, by)

    def break_way(self, source: int, to: int, cause: Fault) -> None:
        """*to* has given *source* up: nothing from there arrives any more."""
        _troubled(self.stream(source, to)).break_for(cause)

    def note_drop(self, message: Message, cause: object) -> None:
        """*message* was dropped because of a fault, or of a receiver that is dead, maybe by a fault."""
        fault = cause.killed_by if isinstance(cause, SimTransport) else cause
        if isinstance(fault, Fault):
            self.faults.log.drops(fault, message.size_bytes)

    # inside

    def _lay(self, sender: SimTransport, receiver: SimTransport) -> Stream:
        route, latency_s = self.surroundings.lay(sender.name, receiver.name)
        rough = self.surroundings.between(sender.name, receiver.name)
        if self.rendezvous:
            rough = rough._replace(rendezvous=self.rendezvous[receiver.rank])
        if self.faults.troubles_ways:
            return TroubledStream(self, sender, receiver, route, latency_s, rough)
        if rough == PLAIN:
            return Stream(self, sender, receiver, route, latency_s)
        return RoughStream(self, sender, receiver, route, latency_s, rough)

    def _open(self, source: int, to: int) -> None:
        """*to* takes what the present incarnation of *source* sends."""
        stream = self._unaccepted.pop((source, to), None)
        if stream is not None:
            stream.go_on()

    def _node(self, rank: int, device: DeviceModel, recorder: Recorder) -> SimTransport:
        return (AskingNode if self.rendezvous else SimTransport)(self, rank, device, recorder)

    def _begin(self, node: SimTransport) -> SimTask[Any]:
        """The task of *node*'s whole life."""
        token = owner_of_task.set(node)
        try:
            body = self._bodies[node.rank]
            return self.loop.create_task(self._live(node, body), name=f"rank {node.rank} ({node.name})")
        finally:
            owner_of_task.reset(token)

    def _run_tasks(self) -> None:
        """Until every node's body has ended, and nobody is to come back."""
        while left := [future for future in (*self.tasks, *self._returns.values()) if not future.done()]:
            # A sys.exit() stops asyncio's loop. It is its task's exception now, for whoever awaits that.
            with suppress(SystemExit):
                self.loop.run_until_complete(asyncio.wait(left))

    async def _live(self, node: SimTransport, body: Body) -> Any:
        """A node's whole life: its body, then a goodbye; or a crash, which the body asks for by raising Crash."""
        reason = ENDED
        try:
            try:
                result = await body(node)
            except Left as left:
                result, reason = left, str(left)
            self._stop_receiving(node)
            if node.buffer is not None:
                await node.buffer.flush()
        except BaseException as error:
            if node.alive and not self._ending:
                node.die()
                self.failures.append((node, error))
                self._cancel_children(node)
                self._announce(node, f"failed: {type(error).__name__}: {error}")
            raise
        if reason != ENDED:
            self._see_off(node, reason)
        self._announce(node, reason)
        return result

    def _stop_receiving(self, node: SimTransport) -> None:
        """The body of *node* is over: from now on it takes in whatever it is sent, and drops it.

        Before its own buffer is empty: two nodes may hold messages for each other.
        """
        self._cancel_children(node)
        node.inbox.close()
        for peer in self._living.values():
            peer.pump(node.rank)

    def _see_off(self, node: SimTransport, reason: str) -> None:
        """*node* was told to leave, and does."""
        node.die()
        self.gone[node.rank], self.has_left = reason, True
        self.faults.ends_notice_of(node)

    def _cancel_children(self, node: SimTransport) -> None:
        current = asyncio.current_task(self.loop)
        for task in self._tasks_of(node):
            if task is not current:
                task.cancel()

    def _tasks_of(self, node: SimTransport) -> list[SimTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self.loop) if isinstance(task, SimTask) and task.owner is node]
        return sorted(tasks, key=lambda task: task.number)

    def _announce(self, node: SimTransport, reason: str) -> None:
        """The news travels behind what the node had sent: one latency, after every message already under way."""
        del self._living[node.rank]
        for source in [source for source, to in self._unaccepted if to == node.rank]:
            self._open(source, node.rank)  # what comes is dropped there
        self.news.departs(node.rank, Departure(self.loop.time(), reason))
        for peer in self._living.values():
            peer.expect_news_of(node.rank)

    def _end_all(self) -> None:
        """Cancels what is left, so that nothing is destroyed while pending."""
        self._ending, left = True, []
        for _ in range(100):  # a task may refuse once or twice
            left = sorted((t for t in asyncio.all_tasks(self.loop) if isinstance(t, SimTask)), key=lambda t: t.number)
            if not left:
                break
            for task in left:
                task.cancel()
            self.loop.call_soon(self.loop.stop)
            with suppress(SystemExit, KeyboardInterrupt):  # a TaskGroup raises again what has ended it
                self.loop.run_forever()
        for task in left:
            _abandon(task)
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # seen: it is part of the outcome
        self.loop.close()


def _abandon(task: SimTask[Any]) -> None:
    """Ends the coroutine of *task*, which refuses to be cancelled, or whose next step was lost to a Ctrl-C.

    At the end of the process it would be ended too late: it may still use tensors that are being destroyed.
    """
    with suppress(BaseException):
        coroutine = task.get_coro()
        if coroutine is not None:
            coroutine.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def _troubled(stream: Stream) -> TroubledStream:
    """All streams are, where the plan has a fault that stops or breaks one."""
    assert isinstance(stream, TroubledStream)
    return stream


def _first(*values: int | None) -> int:
    """The first that is given."""
    return next(value for value in values if value is not None)


def _outcome(task: SimTask[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError("cancelled")
    return task.exception() or task.result()
