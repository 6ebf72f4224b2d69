"""A node's operations in virtual time: messages go onto its streams, work to its modelled device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.payload import Message, Payload, freeze, sizes_of
from simcluster.process.generators import RANKS
from simcluster.transport import ANY, Cost
from simcluster.workloads import Replica
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.node import BaseNode
from simcluster_backends.common.shortcuts import fast_of
from simcluster_backends.sim.loop.workers import LEAST_FLOPS
from simcluster_backends.sim.outgoing import BufferedSend, SimSend

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.lookahead import ScheduleEntrants
    from simcluster_backends.sim.loop.workers import WorkOutcome
    from simcluster_backends.sim.member import SimMember

T = TypeVar("T")


class SimTransport(BaseNode[SimSend | BufferedSend, Any]):
    """The transport of *member*: see simcluster.transport.Transport for the contract."""

    _together: ScheduleEntrants

    def __init__(self, member: SimMember, seed: int, together: ScheduleEntrants, kept: Collection[str]) -> None:
        super().__init__(member.rank, member.names, seed, member.recorder, member.inbox)
        self._member = member
        self._loop = member.loop
        self._together = together
        self._incarnation = member.recorder.incarnation
        self.fast = fast_of(kept, self._exchange, rounds_ahead=self._rounds_ahead)

    @property
    def peers(self) -> tuple[int, ...]:
        if self._news.has_news:
            self._member.listen(ANY)
        return self._inbox.peers

    async def _rounds_ahead(self, rounds: Rounds) -> int:
        return await self._together.enter(self.rank, rounds)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        member, loop = self._member, self._loop
        async with member.device_lock:
            start_s = loop.clock.now_s
            # Run the work at the start, like a real device: it does not see later changes of its
            # arguments, and a cancellation comes too late to stop it.
            device = member.device
            duration_s = device.start(cost, start_s)
            device.alarm = None
            try:
                outcome = self._begin(work, args, kwargs, cost)
                if not duration_s:
                    await asyncio.sleep(0)
                elif member.cores is None:
                    done, device.alarm = loop.rest(duration_s, outcome.context)
                    await done
                else:
                    await member.cores.work(duration_s)
            finally:
                if device.alarm is not None:
                    device.alarm.cancelled = True  # if this task was cancelled, the alarm is still pending
                loop.last_progress = loop.turns
                end_s = loop.clock.now_s
                if device.slowdown is not None:
                    device.stop(end_s)
                self.recorder.span("compute", start_s, end_s, -1, "", 0)
        if outcome.error is not None:
            raise outcome.error
        return outcome.result  # type: ignore[return-value]

    def _begin(
        self, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], cost: Cost
    ) -> WorkOutcome[Any]:
        hand_over = cost.flops >= LEAST_FLOPS and _is_of_a_replica(work) and not (RANKS.live and _may_draw(work))
        return self._loop.workers.begin(self._member, partial(work, *args, **kwargs), hand_over=hand_over)

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.last_progress = self._loop.turns
        super().record(step=step, **metrics)
        if self._member.on_step is not None:
            self._member.on_step(self.rank, step)

    def _post(self, to: int, tag: str, payload: Payload) -> SimSend | BufferedSend | None:
        """Put a message on its stream. With a send buffer, wait only for the sender's overhead."""
        member = self._member
        header_B, body_B = sizes_of(tag, payload)  # raises if the content cannot be sent
        injected: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        stream = member.streams[to]
        message = Message(self.rank, tag, freeze(payload), header_B + body_B, 0, self._incarnation)
        outgoing = SimSend(message, header_B + body_B, body_B, injected, stream.withdraw)
        stream.put(outgoing)
        if member.buffer is not None and member.buffer.take(to, outgoing):
            if stream.prepares(outgoing):
                return BufferedSend(outgoing, self._now)
            self.recorder.span("send", self._now(), self._now(), to, tag, outgoing.size_bytes)
            return None
        return outgoing

    def _join(self, to: int, sending: SimSend | BufferedSend, receiver: Waiting) -> None:
        sending.partner = receiver

    async def _check_reach(self, to: int) -> None:
        await self._member.check_reach(to)


def _is_of_a_replica(work: Callable[..., Any]) -> bool:
    """Return whether *work* is a method of a model replica that computes.

    Such work may run alongside other nodes' work; other functions may share state."""
    replica = getattr(work, "__self__", None)
    return isinstance(replica, Replica) and replica.computes


def _may_draw(work: Callable[..., Any]) -> bool:
    """Return whether a replica's *work* may draw from the global generators that ranks share."""
    return work.__name__ != "loss_and_gradients" or work.__self__.may_draw  # type: ignore[attr-defined]
