"""The node program of a script's rank, which makes the calls on the cluster that the rank's process
asks for.

It is an ordinary algorithm, so everything that works with algorithms works with scripts. In the
simulator, the whole cluster stops while a node program waits for a message of its process: no
virtual time passes before every rank has said what it does next.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple

from simcluster.collectives import subgroup
from simcluster.errors import ENDED, Left, PeerLost, ProgramFailed
from simcluster.scripts.call_notes import CallLabel, CallNotes
from simcluster.scripts.group_calls import OWN, POINT_TO_POINT, ClusterCall, make_call
from simcluster.scripts.messages import (
    CallAwaited,
    CallIssued,
    ClusterAnswer,
    FromRank,
    GroupMade,
    MetricsLogged,
    RankStart,
    ScriptEnded,
    ScriptWork,
    TimeAsked,
)
from simcluster.scripts.rank_process import RankProcess
from simcluster.transport import FREE, Cost, Transport

log = logging.getLogger("simcluster.scripts")


def nothing() -> None:
    """Do nothing: the rank's process has already done the work."""


@dataclass
class ClusterGroup:
    """A process group of a script, among world *ranks*.

    *transport* connects the ranks, and *tag* is the prefix of the tags of their messages. *made* is
    the number of collective calls so far; these run one after another, as on a stream, and *last*
    is the latest one.
    """

    transport: Transport
    ranks: tuple[int, ...]
    tag: str
    made: int = 0
    last: asyncio.Task[int] | None = None


class PendingCall(NamedTuple):
    """A call with a *name* such as "all_reduce 17", which the script has not waited for yet."""

    name: str
    label: CallLabel
    task: asyncio.Task[int]


class RankProgram:
    """A program that acts on *node* for the rank's *process*; its calls use *schedules*."""

    def __init__(self, node: Transport, process: RankProcess, schedules: str = OWN) -> None:
        self._node = node
        self._schedules = schedules
        self._process = process
        self._groups: dict[int, ClusterGroup] = {}
        self._calls: dict[int, PendingCall] = {}
        self._sends: set[asyncio.Task[None]] = set()  # sends that outlast their calls
        self._notes = CallNotes(node)

    async def run(self) -> None:
        """Obey the messages of the process until the script has ended."""
        try:
            while True:
                message = await self._next()
                await self._spend(message.spent)
                if isinstance(message, ScriptEnded):
                    await self._end(message)
                    return
                await self._obey(message)
        except EOFError:
            raise ProgramFailed(f"its process ended with exit code {self._process.exit_code}") from None
        finally:
            tasks = [*self._sends, *[call.task for call in self._calls.values()]]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> FromRank:
        return await self._node.compute(self._process.next, cost=FREE)

    async def _spend(self, spent: ScriptWork) -> None:
        self._notes.note_memory(spent.peak_bytes)
        if spent.flops or spent.memory_bytes or spent.operators:
            cost = Cost(spent.flops, spent.memory_bytes, spent.operators, spent.kind)
            await self._node.compute(nothing, cost=cost)

    async def _obey(self, message: FromRank) -> None:
        if isinstance(message, CallIssued):
            self._issue(message)
        elif isinstance(message, GroupMade):
            self._make_group(message)
        elif isinstance(message, CallAwaited):
            self._process.answer(await self._outcome(message))
        elif isinstance(message, TimeAsked):
            if message.sleep_s:
                await asyncio.sleep(message.sleep_s)
            self._process.answer(ClusterAnswer(self._now_s()))
        elif isinstance(message, MetricsLogged):
            if message.ends:
                self._notes.note_step(message.step)
            self._node.record(step=message.step, **message.metrics)
            if self._notes.is_to_leave and message.ends:
                raise Left(message.step)

    def _make_group(self, message: GroupMade) -> None:
        # Count the earlier groups of the same ranks. All members make these groups in the same
        # order, so they get equal tags.
        before = sum(group.ranks == message.ranks for group in self._groups.values())
        tag = f"script/{'-'.join(map(str, message.ranks))}#{before}"
        self._groups[message.number] = ClusterGroup(subgroup(self._node, message.ranks), message.ranks, tag)

    def _issue(self, call: CallIssued) -> None:
        arena, group = self._process.arena, self._groups[call.group]
        inputs, outputs = [arena.view(one) for one in call.inputs], [arena.view(one) for one in call.outputs]
        if call.operation in POINT_TO_POINT:
            number, before = call.number + 1, None
            transport, tag = self._node, f"{group.tag}/p2p/{call.label}"
        else:
            number = group.made = group.made + 1
            before = group.last
            transport, tag = group.transport, f"{group.tag}/{call.operation} {number}"
        made = ClusterCall(transport, call, tag, inputs, outputs, self._schedules, self._sends)
        size_bytes = max(sum(tensor.nbytes for tensor in tensors) for tensors in (inputs, outputs))
        label = CallLabel(call.operation, group.ranks, size_bytes)
        task = asyncio.create_task(self._make(made, label, before))
        name = "monitored_barrier" if call.label < 0 else f"{call.operation} {number}"
        self._calls[call.number] = PendingCall(name, label, task)
        if call.operation not in POINT_TO_POINT:
            group.last = task

    async def _make(self, call: ClusterCall, label: CallLabel, before: asyncio.Task[int] | None) -> int:
        start_s = self._notes.now_s
        if before is not None and not before.done():
            await asyncio.wait([before])
        source = await make_call(call)
        self._notes.note("call", label, start_s, self._notes.now_s)
        return source

    async def _outcome(self, message: CallAwaited) -> ClusterAnswer:
        name, label, task = self._calls[message.number]
        waits_at = f"{message.line} in {name}"  # noqa: F841, for the report of a deadlock
        since_s = self._notes.now_s
        try:
            source = await asyncio.wait_for(asyncio.shield(task), message.timeout_s)
        except PeerLost as lost:
            how = f"rank {lost.rank} ({lost.name}) has ended" if lost.reason == ENDED else str(lost)
            return ClusterAnswer(self._now_s(), error=f"{message.line}: {name}: {how}")
        except TimeoutError:
            late = f"{message.line}: {name} timed out after {message.timeout_s:g} s"
            return ClusterAnswer(self._now_s(), is_over=False, error=late)
        del self._calls[message.number]
        self._notes.note("wait", label, since_s, self._notes.now_s)
        return ClusterAnswer(self._now_s(), source=-1 if source < 0 else label.ranks.index(source))

    async def _end(self, message: ScriptEnded) -> None:
        if message.code:
            raise ProgramFailed(message.error or f"the script ended with exit code {message.code}")
        if not self._groups and self._node.rank == 0:
            log.warning("the script never called init_process_group: every rank ran all of it, alone")
        # Finish the calls that the script has not waited for, since other ranks may wait for them.
        rest = [call.task for call in self._calls.values() if call.label.operation != "recv"]
        await asyncio.gather(*self._sends, *rest, return_exceptions=True)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


async def run_on_cluster(node: Transport, start: RankStart, schedules: str) -> None:
    """Run a rank of a script as *start* describes, and make its calls over *node* with
    *schedules*.
    """
    process = RankProcess(start)
    try:
        await RankProgram(node, process, schedules).run()
    finally:
        process.end()
