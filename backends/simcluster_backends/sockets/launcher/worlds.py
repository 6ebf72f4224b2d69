"""Run worlds as SimPy processes in real time, which crash, restart and freeze nodes and cut links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from simcluster.errors import ENDED, UsageError, WorldFailed
from simcluster.fault_plans import kinds
from simcluster.job import ClusterJob
from simcluster.topology import Topology
from simcluster_backends.common.worlds.acts import WorldActs
from simcluster_backends.common.worlds.handles import ClusterControl
from simcluster_backends.common.worlds.limits import EventBudget, WorldStalled, world_code
from simcluster_backends.sockets.launcher.faults import BY_ITS_STARTER, LauncherFaults, holds_of
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.wire.messages import LAUNCHER_S, CutOrder, HealOrder

if TYPE_CHECKING:
    import numpy as np

SUPPORTED = (kinds.Crash, kinds.Restart, kinds.Hang, kinds.Cut)

EVENTS_A_TURN = 1000
"""Limit on the events of worlds that are overdue, before the launcher hears its nodes again."""

HELD_SHARE = 0.8
"""The share of the limit on the launcher's silence for which worlds may hold it up: its last heartbeat is older."""


class LauncherStage:
    """See `common.worlds.stage.WorldStage`. It knows what the *members* have last reported."""

    def __init__(
        self, topology: Topology, seed: int, members: Sequence[NodeHandle], faults: LauncherFaults, dead_s: float
    ) -> None:
        self.topology = topology
        self.seed = seed
        self._members = members
        self._faults = faults
        self._dead_s = dead_s
        self._loop = asyncio.get_running_loop()
        self._began = 0  # the number of faults that have begun
        self._faults_on: dict[int, kinds.Fault] = {}
        # The number of a cut -> the pairs that it separates, and the timer after which they lose each other.
        self._cuts: dict[int, tuple[kinds.Pairs, asyncio.TimerHandle]] = {}

    def now_s(self) -> float:
        return self._faults.now_s()

    def lives(self, rank: int) -> bool:
        return not self._members[rank].ended and not self._faults.is_crashed(rank)

    def gone(self, rank: int) -> str | None:
        member = self._members[rank]
        if member.outcome is not None and member.outcome.failure is None:
            return ENDED
        return member.gone or (self._faults.planned.get(rank) if self._faults.is_crashed(rank) else None)

    def steps(self, rank: int) -> int:
        return self._members[rank].steps

    def sent(self) -> Iterator[tuple[str, str, int, Sequence[int]]]:
        for member in self._members:
            for peer, (_, size_bytes) in member.sent_to.items():
                yield member.name, self._members[peer].name, size_bytes, ()

    def begin(self, fault: kinds.Fault) -> int:
        if not isinstance(fault, SUPPORTED):
            raise UsageError(
                f"{fault.kind} by a world", "real nodes", "crash, restart, freeze or cut; sim can do the rest"
            )
        if isinstance(fault, kinds.NodeFault) and self._members[fault.rank].by_hand and type(fault) in BY_ITS_STARTER:
            found = f"{self._members[fault.rank].name}, which is started by hand"
            raise UsageError(fault.kind, found, f"a node of this launcher: {BY_ITS_STARTER[type(fault)]}")
        self._began += 1
        self._faults_on[self._began] = fault
        self._faults.begin(fault)
        if isinstance(fault, kinds.Cut):
            self._cut(self._began, fault)
        return self._began

    def end(self, number: int) -> None:
        self._faults.end(self._faults_on.pop(number))
        if number in self._cuts:
            self._cuts.pop(number)[1].cancel()
            for member in self._members:
                member.tell(HealOrder(number))

    def came(self, rank: int) -> None:
        """Tell *rank*, which has joined, of the cuts in effect."""
        for number, (pairs, _) in self._cuts.items():
            self._tell(rank, number, pairs)

    def nobody_returns(self) -> None:
        """Let the run wait no longer for nodes that its worlds have crashed, since they will not restart them."""
        for fault in self._faults_on.values():
            if isinstance(fault, kinds.Restart) and self._faults.away.get(fault.rank) is fault:
                del self._faults.away[fault.rank]
                reason = kinds.never_restarted(kinds.crashed(fault.author))
                self._faults.planned[fault.rank] = reason
                if self._members[fault.rank].gone is not None:
                    self._members[fault.rank].gone = reason

    def _cut(self, number: int, fault: kinds.Cut) -> None:
        pairs = kinds.severed(fault, self.topology)
        timer = self._loop.call_later(self._dead_s, self._faults.cuts_for_long, self.now_s(), pairs)
        self._cuts[number] = pairs, timer
        for member in self._members:
            self._tell(member.rank, number, pairs)

    def _tell(self, rank: int, number: int, pairs: kinds.Pairs) -> None:
        fault = self._faults_on[number]
        holds = holds_of(fault, pairs, rank, len(self._members))
        if holds:
            self._members[rank].tell(CutOrder(number, holds, kinds.cut_off(self._dead_s, fault.author)))


class LauncherWorlds:
    """The worlds of one run over *members*. *failed* is called with the error that ends them."""

    def __init__(
        self,
        job: ClusterJob,
        members: Sequence[NodeHandle],
        faults: LauncherFaults,
        dead_s: float,
        failed: Callable[[WorldFailed], object],
    ) -> None:
        self._worlds = job.worlds
        self._failed = failed
        self._silence_s = max(dead_s, LAUNCHER_S)
        self._budget = EventBudget()
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        if self._worlds and job.topology is not None:
            # It imports simpy, which a node of such a run does not need.
            from simcluster_backends.common.worlds.environment import WorldEnvironment

            self._env = WorldEnvironment()
            self._stage = LauncherStage(job.topology, job.seed, members, faults, dead_s)

    def start(self) -> None:
        """Begin all worlds, at 0 of the run's clock."""
        streams: dict[str, np.random.Generator] = {}
        for world in self._worlds:
            control = ClusterControl(WorldActs(world.name, self._stage), streams)
            self._env.process(world.begun(self._env, control))
        if self._worlds:
            self._run_due()

    def came(self, rank: int) -> None:
        """Tell *rank*, which has joined, of the cuts in effect."""
        if self._worlds:
            self._stage.came(rank)

    def cancel(self) -> None:
        """Let no world go on."""
        if self._next is not None:
            self._next.cancel()
            self._stage.nobody_returns()

    def _check_held(self, held_s: float) -> None:
        """Raise WorldStalled if the worlds have held up the launcher for so long that nodes may be lost."""
        if held_s > HELD_SHARE * self._silence_s:
            raise WorldStalled(
                f"{held_s:.1f} s of real time without a yield; nodes lose a launcher that is silent for "
                f"{self._silence_s:g} s"
            )

    def _run_due(self) -> None:
        """Let the events happen that are due, and schedule the next."""
        began_s = self._loop.time()
        try:
            for _ in range(EVENTS_A_TURN):
                if self._env.peek() > self._stage.now_s():
                    break
                with world_code(lambda: self._env.resumed):
                    self._env.step()
                    self._budget.count(self._env.now)
                    self._check_held(self._loop.time() - began_s)
        except WorldFailed as error:
            self._failed(error)
            return
        next_s = self._env.peek()
        if next_s < inf:
            self._next = self._loop.call_later(max(0.0, next_s - self._stage.now_s()), self._run_due)
        else:
            self._stage.nobody_returns()
