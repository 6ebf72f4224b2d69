"""All nodes of a simulated cluster in one loop: starts them, ends them, and says who waits when nothing can happen.

This file knows nodes, streams and life and death. It must not know algorithms, experiments or files.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from backends.sim.ahead import Ring
from backends.sim.devices import DeviceModel
from backends.sim.frozen import owner_of_task
from backends.sim.loop import Drained, Endless, SimLoop, SimTask
from backends.sim.models import MODELS
from backends.sim.network import Network
from backends.sim.rendezvous import AskingNode, Rendezvous
from backends.sim.rough import RoughStream
from backends.sim.stream import INBOX_BYTES, Stream
from backends.sim.surroundings import PLAIN, Surroundings
from backends.sim.transport import Departure, SimTransport
from simcluster.errors import ENDED, Deadlock, NeverFinished
from simcluster.results.record import Recorder, kept_spans

if TYPE_CHECKING:
    from simcluster.topology import Topology

Body = Callable[[SimTransport], Awaitable[Any]]

RARELY = (100_000, 50, 50)
"""Thresholds of the garbage collector during a run: messages make no cycles, and looking for them costs a third."""


class Cluster:
    """The workers of *topology*, in rank order, with streams made when first used.

    *inbox_bytes* and *model* are the topology's, if they are not given.
    """

    def __init__(
        self,
        topology: Topology,
        seed: int = 0,
        *,
        inbox_bytes: int | None = None,
        model: str | None = None,
        threads: int = 1,
    ) -> None:
        self.topology, self.seed = topology, seed
        self.inbox_bytes = _first(inbox_bytes, topology.inbox_bytes, INBOX_BYTES)
        self.loop = SimLoop(threads)  # type: ignore[abstract]  # refuses by name what leaves the simulated world
        self.network = Network(self.loop.clock)
        self.surroundings = Surroundings(
            topology, seed, self.loop.clock, self.network, MODELS[model or topology.network]
        )
        asks = self.inbox_bytes == 0
        self.rendezvous = [Rendezvous() for _ in topology.workers if asks]
        self._streams: dict[tuple[int, int], Stream] = {}
        self.tasks: list[SimTask[Any]] = []
        self.nodes: list[SimTransport] = []
        self.failures: list[tuple[int, BaseException]] = []  # (rank, what its body raised), in order of time
        self.crashed: list[int] = []  # by the fault plan
        self.departed: dict[int, Departure] = {}  # by rank, in order of time
        self._ending = False
        keep = kept_spans(len(topology.workers))
        for rank, name in enumerate(topology.workers):
            node = topology.nodes[name]
            assert node.device is not None, "a worker has a device"
            device = DeviceModel(node.device, seed, name)
            make = AskingNode if asks else SimTransport
            self.nodes.append(make(self, rank, device, Recorder(rank, name, self.loop.time, keep)))
        self._living = dict(enumerate(self.nodes))
        self.ring = Ring(self)

    def stream(self, source: int, to: int) -> Stream:
        """The stream between two ranks; the first use lays its route."""
        key = (source, to)
        if key not in self._streams:
            ends = self.nodes[source], self.nodes[to]
            names = ends[0].name, ends[1].name
            route, latency_s = self.surroundings.lay(*names)
            rough = self.surroundings.between(*names)
            if self.rendezvous:
                rough = rough._replace(rendezvous=self.rendezvous[to])
            plain = rough == PLAIN
            self._streams[key] = (
                Stream(self, *ends, route, latency_s) if plain else RoughStream(self, *ends, route, latency_s, rough)
            )
        return self._streams[key]

    def streams(self) -> Iterable[Stream]:
        """Those that have been used, in order of first use."""
        return self._streams.values()

    def run(self, bodies: Sequence[Body], crashes: Sequence[tuple[float, int]] = ()) -> list[Any]:
        """Runs body i as rank i to the end; returns each one's result, or the exception that it ended with.

        *crashes* are (virtual time, rank). Raises Deadlock or NeverFinished if some body cannot, or does not, end.
        """
        assert len(bodies) == len(self.nodes), f"{len(bodies)} bodies for {len(self.nodes)} nodes"
        for node, body in zip(self.nodes, bodies, strict=True):
            token = owner_of_task.set(node)
            self.tasks.append(self.loop.create_task(self._live(node, body), name=f"rank {node.rank} ({node.name})"))
            owner_of_task.reset(token)
        for time_s, rank in crashes:
            self.loop.call_at(time_s, self.crash, rank, "crashed by the fault plan")
        collecting = gc.get_threshold()
        gc.set_threshold(*RARELY)
        try:
            self._run_tasks()
            return [_outcome(task) for task in self.tasks]
        except Drained:
            raise Deadlock(f"deadlock at {self.loop.time():g} s: nothing can happen any more", self.waits()) from None
        except Endless:
            raise NeverFinished(
                f"no work done and nothing recorded for long at {self.loop.time():g} s", self.waits()
            ) from None
        except KeyboardInterrupt:
            self.loop.workers.close()  # work that never ends is not waited for
            raise
        finally:
            gc.set_threshold(*collecting)
            self._end_all()

    def crash(self, rank: int, reason: str) -> None:
        """*rank* dies now, without a goodbye. Its process's end reaches a peer one latency later, as a FIN does."""
        node = self.nodes[rank]
        if not node.alive:
            return
        node.die()
        self.crashed.append(rank)
        for task in self._tasks_of(node):
            task.cancel()
        node.break_off(asyncio.CancelledError)
        self._announce(node, reason)

    def waits(self) -> list[str]:
        """One line per rank that has not ended: what it waits for, and where."""
        lines = []
        for node, task in zip(self.nodes, self.tasks, strict=True):
            if not task.done():
                what = ", ".join(node.waits()) or "something outside the transport"
                lines.append(f"rank {node.rank} ({node.name}) waits for {what}{_place(task)}")
        return lines

    # inside

    def _run_tasks(self) -> None:
        """Until every node's body has ended."""
        while True:
            try:
                self.loop.run_until_complete(asyncio.wait(self.tasks))
                return
            except SystemExit:
                # asyncio stops the loop there. It is its task's exception now, for whoever awaits that.
                continue

    async def _live(self, node: SimTransport, body: Body) -> Any:
        """A node's whole life: its body, then a goodbye; or a crash, which the body asks for by raising Crash."""
        try:
            result = await body(node)
        except BaseException as error:
            if node.alive and not self._ending:
                node.die()
                self.failures.append((node.rank, error))
                self._cancel_children(node)
                self._announce(node, f"failed: {type(error).__name__}: {error}")
            raise
        self._cancel_children(node)
        node.inbox.close()
        self._announce(node, ENDED)
        return result

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
        self.departed[node.rank] = Departure(self.loop.clock.now, reason)
        for peer in self._living.values():
            peer.expect_news_of(node.rank)

    def _end_all(self) -> None:
        """Cancels what is left, so that nothing is destroyed while pending."""
        self._ending = True
        for _ in range(100):  # a task may refuse once or twice; one that always does is left alone
            left = sorted((t for t in asyncio.all_tasks(self.loop) if isinstance(t, SimTask)), key=lambda t: t.number)
            if not left:
                break
            for task in left:
                task.cancel()
            self.loop.call_soon(self.loop.stop)
            with suppress(SystemExit):
                self.loop.run_forever()
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.exception()  # seen: it is part of the outcome
        self.loop.close()


def _first(*values: int | None) -> int:
    """The first that is given."""
    return next(value for value in values if value is not None)


def _outcome(task: SimTask[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError("cancelled")
    return task.exception() or task.result()


def _place(task: SimTask[Any]) -> str:
    """' at file:line' of the innermost frame that is the algorithm's own."""
    place = ""
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType):
        frame = awaited.cr_frame
        if frame is not None and not _is_plumbing(frame.f_code.co_filename):
            place = f" at {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        awaited = awaited.cr_await
    return place


def _is_plumbing(filename: str) -> bool:
    path = filename.replace("\\", "/")
    return "/backends/" in path or "asyncio" in path or path.endswith("/simcluster/inbox.py")


def run_bodies(bodies: Sequence[Body], topology: Topology | None = None, seed: int = 0) -> list[Any]:
    """Runs each body as one node, by default on a star of ideal links: for tests and `check_transport`."""
    if topology is None:
        from simcluster.topology.generators import star

        topology = star(len(bodies))
    return Cluster(topology, seed).run(bodies)
