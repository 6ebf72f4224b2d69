"""The transport interface in virtual time: streams to the other nodes, a mailbox, a device."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.payload import Message, Sendable, as_payload, freeze, sizes_of
from simcluster.rng import NodeRandom
from simcluster.transport import ANY, Any_, Cost
from simcluster.workloads import Replica
from simcluster_backends.common.arguments import check_work
from simcluster_backends.sim.loop.workers import LEAST_FLOPS
from simcluster_backends.sim.outgoing import Outgoing

if TYPE_CHECKING:
    from torch import Tensor

    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.member import Member
    from simcluster_backends.sim.rendezvous import Rendezvous
    from simcluster_backends.sim.stream import Stream

T = TypeVar("T")

EnterRing = Callable[[int, "Tensor", Sequence[int], Callable[[int], str]], Awaitable[int]]
"""Enters a rank in a ring all-reduce that may be computed ahead: (rank, vector, lengths, tag_of) -> rounds done."""


class SimTransport:
    """One simulated node: see simcluster.transport.Transport for what every method promises."""

    def __init__(self, member: Member, seed: int, enter_ring: EnterRing) -> None:
        self.rank, self.size, self.name = member.rank, len(member.names), member.name
        self.recorder = member.recorder
        self.rng = NodeRandom(seed, self.name)
        self._member, self._loop = member, member.loop
        self._enter_ring = enter_ring

    @property
    def peers(self) -> list[int]:
        self._member.listen(ANY)
        return self._member.inbox.peers

    async def send(self, to: int, tag: str, content: Sendable) -> None:
        start_s = self._loop.clock._now
        member = self._member
        member.inbox.check_peer(to)
        if member.membership.has_news:
            await member.check_reach(to)
        stream, outgoing = self._post(to, tag, content)
        if outgoing.is_held:
            self._note_send(start_s, to, outgoing, start_s)
            await asyncio.sleep(0)
            return
        try:
            if outgoing.injected.done():
                await asyncio.sleep(0)
                outgoing.injected.result()
            else:
                await outgoing.injected
        except asyncio.CancelledError:
            stream.withdraw(outgoing)
            raise
        self._note_send(start_s, to, outgoing, outgoing.left_s)

    async def exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        """See simcluster.collectives.exchange: here it takes no task."""
        start_s = self._loop.clock._now
        member = self._member
        member.inbox.check_peer(to)
        if member.membership.has_news:
            await member.check_reach(to)
        stream, outgoing = self._post(to, tag, content)
        if outgoing.is_held:
            self._note_send(start_s, to, outgoing, start_s)
            return await self.recv(source, tag)
        try:
            message = await self._receive(source, tag, outgoing)
            if not outgoing.injected.done():
                await outgoing.injected
        except BaseException:
            stream.withdraw(outgoing)
            if outgoing.injected.done() and not outgoing.injected.cancelled():
                outgoing.injected.exception()  # it may have failed for the same reason, which is told once
            raise
        outgoing.injected.result()
        self._note_send(start_s, to, outgoing, outgoing.left_s)
        return message

    async def ring_ahead(self, vector: Tensor, lengths: Sequence[int], tag_of: Callable[[int], str]) -> int:
        """See simcluster.collectives.ring: how many of its rounds are over already when this returns."""
        return await self._enter_ring(self.rank, vector, lengths, tag_of)

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        return await self._receive(source, tag)

    async def compute(self, work: Callable[..., T], *args: Any, cost: Cost, **kwargs: Any) -> T:
        check_work(work, cost)
        member, loop = self._member, self._loop
        async with member.device_lock:
            start_s = loop.time()
            # Run at the start, as a real device would: what changes later is not seen, and cancelling comes too late.
            duration_s = member.device.start(cost, start_s)
            try:
                hand_over = cost.flops >= LEAST_FLOPS and _is_of_a_replica(work)
                piece = loop.workers.begin(member, partial(work, *args, **kwargs), hand_over=hand_over)
                await asyncio.sleep(duration_s)
            finally:
                loop.progress()
                member.device.stop(loop.time())
                self.recorder.span("compute", start_s, loop.time(), -1, "", 0)
        return piece.result()

    def record(self, *, step: int, **metrics: float) -> None:
        self._loop.progress()
        self.recorder.metrics(step, metrics)
        if self._member.on_step is not None:
            self._member.on_step(self.rank, step)

    # inside

    def _post(self, to: int, tag: str, content: Sendable) -> tuple[Stream, Outgoing]:
        """Put a message on its stream, and into the send buffer if it has room."""
        member = self._member
        payload = as_payload(content)
        header_B, body_B = sizes_of(tag, payload)
        life = self.recorder.incarnation
        message = Message(self.rank, tag, freeze(payload), header_B + body_B, incarnation=life)
        outgoing = Outgoing(message, body_B, self._loop.create_future())
        stream = member.stream(to)
        stream.put(outgoing)
        if member.buffer is not None:
            member.buffer.take(to, outgoing)
        return stream, outgoing

    async def _receive(self, source: int | Any_, tag: str | Any_, outgoing: Outgoing | None = None) -> Message:
        """Receive a message; *outgoing* waits together with it."""
        member, clock = self._member, self._loop.clock
        start_s = clock._now
        on_wait = outgoing.wait_with if outgoing is not None else None
        if member.rendezvous is not None:
            on_wait = partial(_ask, member.rendezvous, source, tag, on_wait)
        message = await member.inbox.take(source, tag, on_wait)
        self.recorder.received(message.size_bytes)
        self.recorder.span("recv", start_s, clock._now, message.source, message.tag, message.size_bytes)
        return message

    def _note_send(self, start_s: float, to: int, outgoing: Outgoing, end_s: float) -> None:
        message = outgoing.message
        self.recorder.span("send", start_s, end_s, to, message.tag, message.size_bytes)


def _ask(
    rendezvous: Rendezvous,
    source: int | Any_,
    tag: str | Any_,
    on_wait: Callable[[Waiting], object] | None,
    receiver: Waiting,
) -> None:
    """Tell the sender of an exchange, if there is one, and the rendezvous that *receiver* waits."""
    if on_wait is not None:
        on_wait(receiver)
    rendezvous.ask(source, tag, receiver)


def _is_of_a_replica(work: Callable[..., Any]) -> bool:
    """Return whether *work* may run in parallel with that of other nodes: other functions may share state."""
    replica = getattr(work, "__self__", None)
    return isinstance(replica, Replica) and replica.computes
