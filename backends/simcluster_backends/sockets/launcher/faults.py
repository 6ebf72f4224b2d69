"""Inject a plan's faults into real nodes: the launcher acts on processes, nodes on connections.

A node gets its cuts, resets and slowdowns before the run begins, and applies them by its own clock:
see simcluster_backends.sockets.node.cuts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any

from simcluster.errors import Problem
from simcluster.fault_plans import kinds
from simcluster.fault_plans.keys import KINDS
from simcluster.fault_plans.log import FaultLog
from simcluster.job import ClusterJob
from simcluster_backends.sockets.launcher.fork_process import SignalName
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.wire import messages
from simcluster_backends.sockets.wire.messages import HoldOrder, ResetOrder

SUPPORTED = (
    *(kinds.Crash, kinds.Restart, kinds.Join, kinds.Leave, kinds.Hang, kinds.Slow),
    *(kinds.Cut, kinds.Partition, kinds.Reset),
)
"""The kinds of faults that real nodes can have. Other kinds need control of the network."""

AT_A_STEP = (kinds.Crash, kinds.Restart, kinds.Leave, kinds.Hang)
"""The kinds that may begin at a step: the launcher injects them as soon as it hears of the step."""

BY_ITS_STARTER = {
    kinds.Hang: "only its launcher can resume a stopped process",
    kinds.Restart: "only its launcher can start it again",
    kinds.Join: "start it late instead (see min_workers)",
}


def check_faults(job: ClusterJob) -> list[Problem]:
    """Return a problem for each fault of *job* that cannot be injected into real nodes."""
    problems = []
    for number, fault in enumerate(job.faults):
        key = f"faults[{number}]"
        if not isinstance(fault, SUPPORTED):
            expected = f"{_names(SUPPORTED)}: the others are for the simulator (--backend sim)"
            problems.append(Problem(f"{key}.kind", f"{fault.kind}, which sockets cannot do", expected))
        elif fault.step is not None and not isinstance(fault, AT_A_STEP):
            expected = f"at, or a {_names(AT_A_STEP)}: nodes are told the times of other faults beforehand"
            problems.append(Problem(f"{key}.at_step", f"{fault.step} for {fault.kind} on sockets", expected))
        elif isinstance(fault, kinds.NodeFault):
            if not 0 <= fault.rank < len(job.names):
                problems.append(Problem(f"{key}.node", f"rank {fault.rank}", f"a rank from 0 to {len(job.names) - 1}"))
            elif type(fault) in BY_ITS_STARTER and job.addresses and job.addresses[fault.rank] is not None:
                found = f"{job.names[fault.rank]}, which is started by hand"
                expected = f"a node started by this launcher, here or by ssh: {BY_ITS_STARTER[type(fault)]}"
                problems.append(Problem(f"{key}.node", found, expected))
        elif job.topology is None:
            problems.append(Problem(key, fault.kind, "a topology with links to cut"))
    return problems


def _names(classes: tuple[type[kinds.Fault], ...]) -> str:
    *names, last = [name for name, kind in KINDS.items() if issubclass(kind.make, classes)]
    return f"{', '.join(names)} or {last}"


def slow_spells(job: ClusterJob, rank: int) -> list[tuple[kinds.Spell, float]]:
    """Return the (spell, factor) of each slowdown of *rank*."""
    return [
        (spell, fault.factor)
        for fault in job.faults
        if isinstance(fault, kinds.Slow) and fault.rank == rank
        for spell in fault.spells
    ]


def holds(job: ClusterJob, rank: int) -> list[HoldOrder]:
    """Return the orders by which *rank* holds traffic back on cut links: their peers, directions
    and times.
    """
    size = len(job.names)
    return [order for fault, pairs in _cuts(job) for order in holds_of(fault, pairs, rank, size)]


def holds_of(fault: kinds.Fault, pairs: kinds.Pairs, rank: int, size: int) -> list[HoldOrder]:
    """Return the part of *rank* in the cut *fault*, which separates *pairs* of *size* ranks."""
    ways: dict[tuple[bool, bool], list[int]] = {}
    for peer in range(size):
        if peer != rank and (way := (pairs(rank, peer), pairs(peer, rank))) != (False, False):
            ways.setdefault(way, []).append(peer)
    return [HoldOrder(peers, sends, receives, list(fault.spells)) for (sends, receives), peers in ways.items()]


def resets(job: ClusterJob, rank: int) -> list[ResetOrder]:
    """Return the orders with which *rank* resets connections: their peers and times.

    Only the end with the lower rank resets a connection.
    """
    orders = []
    for fault in job.faults:
        if isinstance(fault, kinds.Reset) and job.topology is not None:
            pairs = kinds.severed(fault, job.topology)
            peers = [peer for peer in range(rank + 1, len(job.names)) if pairs(rank, peer)]
            if peers:
                orders.append(ResetOrder(peers, [at_s for at_s, _ in fault.spells]))
    return orders


def _cuts(job: ClusterJob) -> list[tuple[kinds.Fault, kinds.Pairs]]:
    topology = job.topology
    if topology is None:
        return []
    return [
        (fault, kinds.severed(fault, topology))
        for fault in job.faults
        if isinstance(fault, (kinds.Cut, kinds.Partition))
    ]


class LauncherFaults:
    """The faults of one run, from its start to its end.

    *signal* sends a signal to the process of a member; *bring* starts the process of a rank.
    *planned* maps each rank that the plan has killed or stopped to the reason for its loss. *away*
    maps each rank that the plan will start later, or again, to its Join or Restart.
    """

    def __init__(
        self,
        job: ClusterJob,
        members: Sequence[NodeHandle],
        dead_s: float,
        signal: Callable[[NodeHandle, SignalName], object],
        bring: Callable[[int], object],
    ) -> None:
        self._job = job
        self._members = members
        self._dead_s = dead_s
        self._signal = signal
        self._bring = bring
        self._loop = asyncio.get_running_loop()
        self._started_s = 0.0
        self._timers: list[asyncio.TimerHandle] = []
        self._at_steps = [fault for fault in job.faults if fault.step is not None]
        self._long_cuts = [
            (min(start_s for start_s, end_s in fault.spells if end_s - start_s > dead_s), pairs)
            for fault, pairs in _cuts(job)
            if any(end_s - start_s > dead_s for start_s, end_s in fault.spells)
        ]
        self._told: list[tuple[kinds.Leave, int]] = []  # (order to leave, incarnation)
        self.planned: dict[int, str] = {}
        late = [fault for fault in job.faults if isinstance(fault, kinds.Join) and fault.spells[0][1] > 0]
        self.away: dict[int, kinds.Fault] = {fault.rank: fault for fault in late}
        self.log = FaultLog(self.now_s, sees_bytes=False)

    def now_s(self) -> float:
        """Return the time by the run's clock."""
        return self._loop.time() - self._started_s

    def start(self) -> None:
        """Start the run's clock at 0, and schedule all faults that begin at a time.

        A fault that begins at a step waits for `on_step`.
        """
        self._started_s = self._loop.time()
        for fault in self._job.faults:
            if fault.step is None:
                self._schedule(fault)

    def on_step(self, rank: int, step: int) -> None:
        """Schedule the faults that begin at *step* of *rank*, which has just reported that step."""
        for fault in [fault for fault in self._at_steps if fault.is_reached(rank, step)]:
            self._at_steps.remove(fault)
            self._schedule(fault.counted_from(self.now_s()))

    def cancel(self) -> None:
        """Cancel all scheduled beginnings and ends of faults."""
        for timer in self._timers:
            timer.cancel()

    def rows(self, ended_s: float, lost: Collection[str]) -> list[dict[str, Any]]:
        """Return the log's rows of faults that began by *ended_s*, the end of the last node, or that
        one of *lost* had.

        A node reports its last step before its outcome, so a fault at that step may come too late.
        """
        return [row for row in self.log.rows() if row["spells_s"][0][0] <= ended_s or row["target"] in lost]

    def has_left(self, rank: int) -> None:
        """Note that *rank* has left: log the end of any fault that ordered it to leave."""
        for fault, _ in self._told:
            if fault.rank == rank:
                self.log.ends(fault)

    def came(self, rank: int) -> None:
        """Note that *rank* has joined or rejoined, so that its next loss counts as unplanned."""
        self.planned.pop(rank, None)

    def is_crashed(self, rank: int) -> bool:
        """Return whether a fault has killed *rank*, which has not come back."""
        return self.planned.get(rank, "").startswith("crashed")

    def cuts_for_long(self, start_s: float, pairs: kinds.Pairs) -> None:
        """Note that a cut of *pairs* since *start_s* lasts long enough for them to lose each other."""
        self._long_cuts.append((start_s, pairs))

    def cut_off(self, a: int, b: int) -> bool:
        """Return whether *a* has been cut off from *b*, in a spell long enough for them to lose
        each other.
        """
        now_s = self.now_s()
        return any(start_s < now_s and (pairs(a, b) or pairs(b, a)) for start_s, pairs in self._long_cuts)

    # the beginnings and ends of faults

    def _schedule(self, fault: kinds.Fault) -> None:
        for start_s, end_s in fault.spells:
            self._at(start_s, self.begin, fault)
            if end_s < inf:
                self._at(end_s, self.end, fault)

    def _at(self, time_s: float, action: Callable[[kinds.Fault], None], fault: kinds.Fault) -> None:
        self._timers.append(self._loop.call_at(self._started_s + time_s, action, fault))

    def begin(self, fault: kinds.Fault) -> None:
        """Begin *fault* of a node; of others, keep the log: the nodes know their times."""
        if not isinstance(fault, kinds.NodeFault):
            self.log.begins(fault)
            return
        member = self._members[fault.rank]
        if member.ended and not isinstance(fault, kinds.Join):
            return
        self.log.begins(fault)
        if isinstance(fault, (kinds.Crash, kinds.Restart)):
            hung = kinds.hung(self._dead_s, "")
            if self.planned.get(fault.rank, hung).startswith(hung):  # a stopped process dies, too
                self.planned[fault.rank] = kinds.crashed(fault.author)
            if isinstance(fault, kinds.Restart):
                self.away[fault.rank] = fault
            self._kill(member)
        elif isinstance(fault, kinds.Leave):
            self._told.append((fault, member.incarnation))
            member.tell(messages.LeaveOrder())
        elif isinstance(fault, kinds.Hang):
            self._signal(member, "SIGSTOP")
            self.planned.setdefault(fault.rank, kinds.hung(self._dead_s, fault.author))

    def end(self, fault: kinds.Fault) -> None:
        """End *fault*, which has begun."""
        self.log.ends(fault)
        if not isinstance(fault, kinds.NodeFault):
            return
        member = self._members[fault.rank]
        if isinstance(fault, (kinds.Restart, kinds.Join)) and self.away.get(fault.rank) is fault:
            del self.away[fault.rank]
            self._bring(fault.rank)
        elif isinstance(fault, kinds.Leave) and not member.ended and (fault, member.incarnation) in self._told:
            self.planned.setdefault(fault.rank, kinds.overdue(fault.notice_s))
            self._kill(member)
        elif isinstance(fault, kinds.Hang):
            self._signal(member, "SIGCONT")
            if self.planned.get(fault.rank) == kinds.hung(self._dead_s, fault.author):
                del self.planned[fault.rank]

    def _kill(self, member: NodeHandle) -> None:
        if member.by_hand:
            member.tell(messages.CrashOrder())
        else:
            self._signal(member, "SIGKILL")
