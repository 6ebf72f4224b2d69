"""A node in real time: its work runs in a thread, and a watchdog reads its algorithm's progress."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from simcluster.payload import Message, Sendable
from simcluster.transport import ANY, OWN_TAGS, Any_
from simcluster_backends.common.device import DeviceWork, NodeDevice
from simcluster_backends.common.node import BaseNode
from simcluster_backends.common.shares import SENDING, WAITING
from simcluster_backends.common.watchdog import NodeProgress

if TYPE_CHECKING:
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.common.inbox import Inbox


@dataclass(eq=False)
class NumberedSend:
    """An outgoing message of *size_bytes*, the *number*-th of its node; *now* is the clock of the run."""

    number: int
    size_bytes: int
    injected: asyncio.Future[None]
    now: Callable[[], float]

    @property
    def left_s(self) -> float:
        return self.now()

    def withdraw(self) -> None:
        raise NotImplementedError


S = TypeVar("S", bound=NumberedSend)


class NodeActivity:
    """An algorithm's progress, for the watchdog. *recorded* counts the calls of `record`.

    *sending* maps the number of each pending send to (to, tag, bytes).
    """

    def __init__(self, inbox: Inbox, device: NodeDevice, recorder: Recorder) -> None:
        self.inbox = inbox
        self.device = device
        self.recorder = recorder
        self.recorded = self.sends = 0
        self.sending: dict[int, tuple[int, str, int]] = {}

    def progress(self, moved: int, *, ended: bool = False) -> NodeProgress:
        """Return the node's progress. *moved* counts the activity on its connections."""
        done = self.device.ended + self.recorded
        moved += done + self.recorder.record.bytes_received
        computing = self.device.computing + self.device.is_judging
        return NodeProgress(moved, done, computing, self._pending(), ended)

    def waits(self) -> list[str]:
        """Describe everything that the node waits for, including its device."""
        return [*(["a piece of its work"] if self.device.computing else []), *self._pending()]

    def _pending(self) -> list[str]:
        # Copy in one step: this may run in another thread, while the loop changes the dict.
        pending = list(self.sending.values())
        sends = [f"send(to={to}, tag={tag!r}, {size_bytes} B)" for to, tag, size_bytes in pending]
        return self.inbox.mailbox.describe() + sends

    def number(self, to: int, tag: str, size_bytes: int) -> int:
        """Register a new send and return its number."""
        self.sends += 1
        self.device.shares.begin(SENDING)
        self.sending[self.sends] = to, tag, size_bytes
        return self.sends


class RealNode(BaseNode[S, DeviceWork]):
    """A node in real time. A backend supplies `_post` and numbers messages with *activity*."""

    def __init__(self, rank: int, names: Sequence[str], seed: int, activity: NodeActivity) -> None:
        super().__init__(rank, names, seed, activity.recorder, activity.inbox)
        self._activity = activity

    async def recv(self, source: int | Any_ = ANY, tag: str | Any_ = ANY) -> Message:
        if isinstance(tag, str) and tag.startswith(OWN_TAGS):
            # A wait of the library for its own message does not count as a wait of the algorithm.
            return await super().recv(source, tag)
        shares = self._activity.device.shares
        shares.begin(WAITING)
        try:
            return await super().recv(source, tag)
        finally:
            shares.end(WAITING)

    async def _exchange(self, to: int, source: int, tag: str, content: Sendable) -> Message:
        shares = self._activity.device.shares
        shares.begin(WAITING)
        try:
            return await super()._exchange(to, source, tag, content)
        finally:
            shares.end(WAITING)

    def record(self, *, step: int, **metrics: float) -> None:
        self._activity.recorded += 1
        super().record(step=step, **metrics)

    def _submit(self, work: Callable[[], Any]) -> DeviceWork:
        return self._activity.device.submit(work)

    def _call_off(self, piece: DeviceWork) -> None:
        self._activity.device.call_off(piece)

    def _forget(self, sending: S) -> None:
        del self._activity.sending[sending.number]
        self._activity.device.shares.end(SENDING)
