"""A node's operations over torch.distributed: messages become frames on the stream to their peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from simcluster.payload import Payload
from simcluster_backends.common.real_node import RealNode
from simcluster_backends.torch.frame import Frame, data_frame
from simcluster_backends.torch.link import Link
from simcluster_backends.torch.member import Member


class Sending:
    """The send of *number*: a *frame* queued on *link*."""

    def __init__(
        self, number: int, frame: Frame, link: Link, left: Callable[[], object], now: Callable[[], float]
    ) -> None:
        self.number, self.size_bytes = number, frame.size_bytes
        self.injected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._link, self._now = link, now
        self._queued = link.put(frame, self.injected, left)

    @property
    def left_s(self) -> float:
        return self._now()

    def withdraw(self) -> None:
        self._link.withdraw(self._queued)


class TorchTransport(RealNode[Sending]):
    """The transport of *member*: simcluster.transport.Transport says what every method promises."""

    def __init__(self, member: Member, seed: int) -> None:
        super().__init__(member.rank, member.names, seed, member.activity)
        self._member = member

    def _post(self, to: int, tag: str, payload: Payload) -> Sending:
        frame = data_frame(tag, payload)
        number = self._activity.number(to, tag, frame.buffer.numel())
        link = self._member.link(to)
        return Sending(number, frame, link, lambda: self.recorder.sent(to, frame.size_bytes), self._now)

    def _forget(self, sending: Sending) -> None:
        super()._forget(sending)
        if sending.injected.done() and not sending.injected.cancelled():
            sending.injected.exception()  # retrieved, even if the wait was cancelled first
