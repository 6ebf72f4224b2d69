"""A node in a torch.distributed group: its links, the losses of peers, and its transport."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import torch

from simcluster.compute import HOST
from simcluster.errors import ENDED, ProtocolError
from simcluster.payload import Payload
from simcluster.runs.recorder import Recorder
from simcluster_backends.common.device import NodeDevice
from simcluster_backends.common.inbox import INBOX_BYTES, Inbox
from simcluster_backends.common.real_node import NodeActivity, RealNode
from simcluster_backends.common.shortcuts import SHORTCUTS, fast_of
from simcluster_backends.common.watchdog import NodeProgress
from simcluster_backends.torch.device_transfers import DeviceTransfers
from simcluster_backends.torch.frame import (
    TorchFrame,
    TorchFrameKind,
    content_of,
    control_frame,
    data_frame,
    read_message,
)
from simcluster_backends.torch.group import TorchGroup
from simcluster_backends.torch.link import RankLink, TorchSend

log = logging.getLogger("simcluster.torch")

LAST_WORDS_S = 1.0
"""The grace period for draining a lost peer's stream."""
WORK_S = 5.0
"""The time that device work has to end when the run is over."""
THREADS_S = 0.5
"""The time that threads have to end once all connections are cut: some may be stuck in gloo."""


class TorchMember:
    """One node among the ranks of *group*. Create it inside the node's loop.

    An algorithm sees only the transport, not this object. With *carriers*, one for each peer,
    tensors on *device* travel from device to device.
    """

    def __init__(
        self, rank: int, names: Sequence[str], recorder: Recorder, group: TorchGroup, *, inbox_bytes: int = INBOX_BYTES,
        device: torch.device = HOST, carriers: Mapping[int, DeviceTransfers] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.rank = rank
        self.name = names[rank]
        self.names = names
        self.recorder = recorder
        self.outcomes: dict[int, bytes] = {}  # encoded records of peers, by rank
        self._inbox_bytes = inbox_bytes
        self._group = group
        self.carries = device if carriers else None
        self._loop = asyncio.get_running_loop()
        self.inbox = Inbox(rank, names, self._loop, self._has_room)
        self.device = NodeDevice(self.name, recorder)
        self.activity = NodeActivity(self.inbox, self.device, recorder)
        self._over: set[int] = set()  # peers with an ended stream
        self.all_over = asyncio.Event()  # set once every peer has ended or is lost
        calls = self.received, self.gone, self.expect_end
        peers = [peer for peer in range(len(names)) if peer != rank]
        self.links = {peer: RankLink(group, peer, self._loop, *calls, carriers.get(peer)) for peer in peers}
        if not self.links:
            self.all_over.set()
        for link in self.links.values():
            link.start()

    async def hand_in(self, to: int, content: bytes, timeout_s: float, *, urgent: bool) -> None:
        """Send this node's outcome, *content*, to rank *to*.

        The rank is lost if it does not accept the outcome within *timeout_s*. With *urgent*, drop
        the frames that are queued for the rank first.
        """
        if urgent:
            self.links[to].drop_waiting()
        await self._put_and_wait(to, control_frame(TorchFrameKind.OUTCOME, content), timeout_s)

    async def finish(self, reason: str = "", timeout_s: float = 60.0) -> None:
        """Announce the end of this node's algorithm to all peers, and drop incoming messages.

        *reason* is empty if the algorithm ended well.
        """
        self.inbox.close()
        ends = []
        for peer, link in self.links.items():
            if reason:
                link.drop_waiting()  # no task waits for the queued sends any more
                # In a thread: `warn` blocks until the peer receives, which may be never.
                self._loop.run_in_executor(None, link.warn, reason)
            link.make_room()
            ends.append(self._put_and_wait(peer, control_frame(TorchFrameKind.END, reason.encode()), timeout_s))
        await asyncio.gather(*ends)

    def expect_end(self, rank: int, reason: str) -> None:
        """Lose *rank*, which is reported gone, once messages in flight have had time to arrive."""
        if rank in self._over or rank == self.rank:
            return
        self.links[rank].make_room()
        self._loop.call_later(LAST_WORDS_S, self.give_up, rank, reason)

    def give_up(self, rank: int, reason: str) -> None:
        """Lose *rank* now. Threads that are stuck in gloo stay: they are daemons."""
        if rank in self._over:
            return
        self.links[rank].close(reason)
        self.gone(rank, reason)

    async def close(self) -> None:
        """Cut all connections, and wait up to WORK_S for device work. Make no call after this."""
        self.inbox.close()
        for link in self.links.values():
            link.close("this node has closed")
        await self._loop.run_in_executor(None, self._end_threads)

    def _end_threads(self) -> None:
        self._group.cut()
        until_s = time.monotonic() + THREADS_S
        for link in self.links.values():
            link.join(until_s)
        if not self.device.close(WORK_S):
            log.warning("%s: a piece of its work has not ended after %g s; it is left behind", self.name, WORK_S)

    @property
    def progress(self) -> NodeProgress:
        """This node's progress, for rank 0's watchdog."""
        moved = sum(link.moved for link in self.links.values())
        return self.activity.progress(moved, ended=self.recorder.record.finished_s is not None)

    # called by links

    def received(
        self, rank: int, kind: TorchFrameKind, header_bytes: int, buffer: torch.Tensor, body: torch.Tensor | None = None
    ) -> bool:
        """Take a frame from *rank*; return whether there is room for more."""
        if kind in (TorchFrameKind.DATA, TorchFrameKind.CARRIED):
            if self.inbox.lost.get(rank) is not None:
                return True  # drop it: the peer is lost here already
            self.inbox.put(read_message(rank, header_bytes, buffer, body))
            return self.inbox.mailbox.queued_bytes(rank) < self._inbox_bytes
        content = content_of(buffer)
        if kind is TorchFrameKind.OUTCOME:
            self.outcomes[rank] = content
        else:
            try:
                self.gone(rank, content.decode() or ENDED)
            except UnicodeDecodeError:
                raise ProtocolError("an end that is not text") from None
        return True

    def gone(self, rank: int, reason: str) -> None:
        self.inbox.lose(rank, reason)
        self._over.add(rank)
        if len(self._over) == len(self.links):
            self.all_over.set()

    # internal

    def _has_room(self, source: int) -> None:
        if self.inbox.mailbox.queued_bytes(source) < self._inbox_bytes:
            self.links[source].make_room()

    async def _put_and_wait(self, to: int, frame: TorchFrame, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.links[to].put(frame).injected
        except (ConnectionError, TimeoutError):
            self.gone(to, "it does not accept a goodbye")


class TorchTransport(RealNode[TorchSend]):
    """The transport of *member*: see simcluster.transport.Transport for the contract."""

    def __init__(self, member: TorchMember, seed: int, kept: Collection[str] = SHORTCUTS) -> None:
        super().__init__(member.rank, member.names, seed, member.activity)
        self._member = member
        self.carries = member.carries
        self.fast = fast_of(kept, self._exchange)

    def _post(self, to: int, tag: str, payload: Payload) -> TorchSend:
        frame = data_frame(tag, payload, self.carries)
        body_bytes = 0 if frame.body is None else frame.body.numel()
        number = self._activity.number(to, tag, frame.buffer.numel() + body_bytes)
        return self._member.links[to].put(frame, number, lambda: self.recorder.sent(to, frame.size_bytes), self._now)

    def _forget(self, sending: TorchSend) -> None:
        super()._forget(sending)
        if sending.injected.done() and not sending.injected.cancelled():
            sending.injected.exception()  # mark it as retrieved: its wait may have been cancelled
