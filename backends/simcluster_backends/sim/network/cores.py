"""The cores of a machine that several nodes share, and the overhead of messages.

Cores are shared as by an operating system: n threads on k cores each run at min(1, k/n) of their
speed. The bytes between two nodes of one machine are moved by its cores, one at each end, so they
count as two threads. A thread that wakes up may find its core busy, and then waits until the thread
there has had its turn. The model uses the expected value: the wait times the share of cores that
have work. Threads that wake up are a node's event loop when a message arrives or a piece of work
ends, and the thread of its device when a piece begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from simcluster_backends.sim.network.flows import Flow

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.network.fairshare import Channel
    from simcluster_backends.sim.network.flows import Network


@dataclass(slots=True, eq=False)
class Cores:
    """The cores of one machine: a *channel* with a capacity in core seconds per second.

    *weight* is the weight of one thread. It is the inverse of the bandwidth between nodes of the
    machine, so that a flow of bytes, which keeps two threads busy, gets twice a thread's share.
    """

    network: Network
    channel: Channel
    weight: float
    wakeup_s: float = 0.0
    _running: int = 0

    def wait_s(self) -> float:
        """Return how long a thread that wakes up now waits for a core, on average."""
        return self.wakeup_s * min(1.0, self._running / self.channel.capacity_Bps)

    def run(self, work_s: float, then: Callable[[], None]) -> Flow:
        """Call *then* once a thread has had a core for *work_s*; return the flow of the work."""
        flow = Flow(((self.channel, 1.0),), 1.0, self.weight, left_B=work_s, on_done=partial(self._stop, then))
        self._running += 1
        self.network.put(flow)
        return flow

    def _stop(self, then: Callable[[], None]) -> None:
        self._running -= 1
        then()

    async def work(self, work_s: float) -> None:
        """Wait until a thread has woken up, had a core for *work_s* and woken the caller."""
        await self._wake_up()
        done: asyncio.Future[None] = asyncio.Future()
        flow = self.run(work_s, partial(_finish, done))
        try:
            await done
        except asyncio.CancelledError:
            if not done.done() or done.cancelled():
                # The flow has not finished, and once it is cancelled `_stop` never runs.
                self._running -= 1
                self.network.cancel(flow)
            raise
        await self._wake_up()

    async def _wake_up(self) -> None:
        if wait_s := self.wait_s():
            await asyncio.sleep(wait_s)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


@dataclass(slots=True, eq=False)
class Overheads:
    """The overheads of a node: *send_s* per message sent, *recv_s* per message received.

    A node handles its messages one after another, and does not occupy its device with them. If
    nodes share a machine, the handling occupies the *cores* of the machine.
    """

    clock: Clock
    send_s: float
    recv_s: float
    cores: Cores | None = None
    _free_s: float = 0.0
    _waiting: deque[tuple[float, Callable[[Any], object], Any]] = field(default_factory=deque)

    def handle(self, overhead_s: float, then: Callable[[Any], object], argument: Any, *, wakes: bool = False) -> None:
        """Call *then* with *argument* when all earlier overheads and *overhead_s* have passed.

        If the message *wakes* an idle event loop, it also waits for a core.
        """
        if self.cores is not None:
            self._waiting.append((overhead_s, then, argument))
            if len(self._waiting) == 1:
                wait_s = self.cores.wait_s() if wakes else 0.0
                if wait_s:
                    self.clock.alarm_at(self.clock.now_s + wait_s, self._run_first)
                else:
                    self._run_first()
            return
        now_s = self.clock.now_s
        self._free_s = (self._free_s if self._free_s > now_s else now_s) + overhead_s
        if self._free_s > now_s:
            self.clock.alarm_at(self._free_s, then, argument)
        else:
            then(argument)

    def _run_first(self, _: object = None) -> None:
        assert self.cores is not None
        self.cores.run(self._waiting[0][0], self._handled)

    def _handled(self) -> None:
        _, then, argument = self._waiting.popleft()
        if self._waiting:
            self._run_first()
        then(argument)
