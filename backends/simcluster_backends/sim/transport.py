"""A node's operations in virtual time: messages go onto its streams, work to its modelled device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.errors import PeerLost
from simcluster.payload import Message, Payload, Sendable, as_payload, freeze, sizes_of
from simcluster.process.generators import RANKS
from simcluster.transport import ANY, Any_, Cost
from simcluster.workloads import Replica
from simcluster_backends.common.arguments import check_work
from simcluster_backends.common.node import BaseNode
from simcluster_backends.sim.loop.workers import LEAST_FLOPS
from simcluster_backends.sim.outgoing import BufferedSend, SimSend
from simcluster_backends.sim.star import FanOut, FanOutSend, MessageGathering, PendingQuestion

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.lookahead import ScheduleEntrants
    from simcluster_backends.sim.loop.workers import WorkOutcome
    from simcluster_backends.sim.member import SimMember

T = TypeVar("T")


class SimTransport(BaseNode[SimSend | BufferedSend, Any]):
    """The transport of *member*: simcluster.transport.Transport says what every method promises."""

    def __init__(self, member: SimMember, seed: int, together: ScheduleEntrants) -> None:
        super().__init__(member.rank, member.names, seed, member.recorder, member.inbox)
        self._member, self._loop = member, member.loop
        self._news, self._together = member.membership, together

    @property
    def peers(self) -> tuple[int, ...]:
        if self._news.has_news:
            self._member.listen(ANY)
        return self._inbox.peers

    async def rounds_ahead(self, rounds: Rounds) -> int:
        """See simcluster.transport.OptionalVerbs."""
        return await self._together.enter(self.rank, rounds)

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        if self._together.entered:
            await self._together.leave()
        await super().send(to, tag, content)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if self._together.entered:
            await self._together.leave()
        return await super().recv(source, tag)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        if self._together.entered:
            await self._together.leave()
        return await super().exchange(to, source, tag, content)

    async def ask(self, to: int, tag: str, content: Sendable, answer: str) -> Message:
        """See simcluster.transport.OptionalVerbs."""
        if self._together.entered:
            await self._together.leave()
        if not self._member.is_simple:
            await super().send(to, tag, content)
            return await self.recv(to, answer)
        payload, inbox = as_payload(content), self._inbox
        inbox.check_peer(to)
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        sizes_B = sizes_of(tag, payload)
        asking = PendingQuestion(self._member, future, to, tag, answer, sum(sizes_B))
        outgoing = self._put(to, tag, freeze(payload), sizes_B, asking)
        try:
            message: Message | None = await future
        except asyncio.CancelledError:
            if asking.waits:
                inbox.give_up(to, future)
            else:
                outgoing.withdraw()
            raise
        except PeerLost:
            inbox.mailbox.withdraw(future)
            raise
        if message is None:
            return await self.recv(to, answer)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", asking.since_s, self._now(), message.source, message.tag, message.size_bytes)
        return message

    async def gather(self, tag: str, most: int, into: list[Message]) -> None:
        """See simcluster.transport.OptionalVerbs."""
        if self._together.entered:
            await self._together.leave()
        member = self._member
        if most == 1 or not member.is_simple or self._inbox.mailbox.has_any(tag):
            into.append(await self.recv(ANY, tag))
            return
        gathering = MessageGathering(member, asyncio.Future(loop=self._loop), tag, most, into)
        gathering.wait()
        try:
            await gathering.future
        except asyncio.CancelledError:
            gathering.give_up()
            raise

    def send_each(
        self, to: Sequence[int], tag: str, content: Sendable, over: Callable[[int, bool], object]
    ) -> Coroutine[Any, Any, None] | None:
        """See simcluster.transport.OptionalVerbs."""
        return self._send_each(to, tag, as_payload(content), over) if self._member.is_simple else None

    async def _send_each(
        self, to: Sequence[int], tag: str, payload: Payload, over: Callable[[int, bool], object]
    ) -> None:
        if self._together.entered:
            await self._together.leave()
        member = self._member
        sharing = FanOut(member, asyncio.Future(loop=self._loop), len(to), tag, over)
        sizes_B = sizes_of(tag, payload)
        size_B = sum(sizes_B)
        is_hollow = all(tensor.is_meta for tensor in payload.tensors)  # then there is nothing to copy for each
        tensors = freeze(payload).tensors if is_hollow else ()
        outgoing = []
        for rank in to:
            frozen = Payload(tensors, dict(payload.values)) if is_hollow else freeze(payload)
            outgoing.append(self._put(rank, tag, frozen, sizes_B, FanOutSend(sharing, rank, size_B)))
        if not sharing.left:
            await asyncio.sleep(0)
            return
        try:
            await sharing.future
        except BaseException:
            for each in outgoing:
                if not each.injected.done():
                    each.withdraw()
            raise

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        member, loop = self._member, self._loop
        if not member.device_lock.take():
            await member.device_lock.acquire()
        try:
            start_s = loop.clock._now
            # Run at the start, as a real device would: later changes are not seen, and cancelling comes too late.
            duration_s = member.device.start(cost, start_s)
            alarm = None
            try:
                outcome = self._begin(work, args, kwargs, cost)
                if not duration_s:
                    await asyncio.sleep(0)
                elif member.cores is None:
                    done, alarm = loop.rest(duration_s, outcome.context)
                    await done
                else:
                    await member.cores.work(duration_s)
            finally:
                if alarm is not None:
                    alarm.cancelled = True  # it may not have come yet
                loop.progress()
                end_s = loop.clock._now
                member.device.stop(end_s)
                self.recorder.span("compute", start_s, end_s, -1, "", 0)
        finally:
            member.device_lock.give()
        return outcome.result()  # type: ignore[no-any-return]

    def _begin(
        self, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], cost: Cost
    ) -> WorkOutcome[Any]:
        hand_over = cost.flops >= LEAST_FLOPS and _is_of_a_replica(work) and not (RANKS.live and _may_draw(work))
        return self._loop.workers.begin(self._member, partial(work, *args, **kwargs), hand_over=hand_over)

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.progress()
        super().record(step=step, **metrics)
        if self._member.on_step is not None:
            self._member.on_step(self.rank, step)

    def _post(self, to: int, tag: str, payload: Payload) -> SimSend | BufferedSend | None:
        """As promised, except that of a message that fits into the send buffer only the overhead is waited for."""
        member = self._member
        sizes_B = sizes_of(tag, payload)  # refuses what cannot travel
        injected: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        outgoing = self._put(to, tag, freeze(payload), sizes_B, injected)
        if member.buffer is not None and member.buffer.take(to, outgoing):
            if member.stream(to).prepares(outgoing):
                return BufferedSend(outgoing, self._now)
            self.recorder.span("send", self._now(), self._now(), to, tag, outgoing.size_bytes)
            return None
        return outgoing

    def _put(self, to: int, tag: str, frozen: Payload, sizes_B: tuple[int, int], injected: Any) -> SimSend:
        """Put a message on the stream to rank *to*."""
        (header_B, body_B), stream = sizes_B, self._member.stream(to)
        message = Message(self.rank, tag, frozen, header_B + body_B, 0, self.recorder.incarnation)
        outgoing = SimSend(message, header_B + body_B, body_B, injected, stream.withdraw)
        stream.put(outgoing)
        return outgoing

    def _join(self, to: int, sending: SimSend | BufferedSend, receiver: Waiting) -> None:
        sending.partner = receiver

    async def _check_reach(self, to: int) -> None:
        await self._member.check_reach(to)


def _is_of_a_replica(work: Callable[..., Any]) -> bool:
    """Return whether *work* may run in parallel with other nodes' work: other functions may share state."""
    replica = getattr(work, "__self__", None)
    return isinstance(replica, Replica) and replica.computes


def _may_draw(work: Callable[..., Any]) -> bool:
    """Return whether *work*, of a replica, may draw from the global generators, which another rank's code needs."""
    return work.__name__ != "loss_and_gradients" or work.__self__.may_draw  # type: ignore[attr-defined]
