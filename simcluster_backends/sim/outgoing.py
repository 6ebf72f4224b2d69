"""A message on its way out of a node, and the limit of unread bytes that holds back the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster_backends.common.inbox import Waiting
    from simcluster_backends.sim.network.flows import Flow

INBOX_BYTES = 64 * 1024 * 1024
"""Unreceived bytes per peer beyond which a node stops reading from it, as the sockets backend does."""


class Lane(Protocol):
    """A stream as its messages see it."""

    def withdraw(self, outgoing: Outgoing) -> None: ...


class Outgoing:
    """A message on its way out: *injected* is done when its last byte has left, at *left_s*.

    *partner* is the receiver of the same exchange, which fails with it. No sender waits for a message that *is_held*
    by a send buffer.
    """

    __slots__ = ("_lane", "body_B", "flow", "injected", "is_held", "left_s", "message", "partner", "size_bytes")

    def __init__(self, message: Message, body_B: int, injected: asyncio.Future[None], lane: Lane) -> None:
        self.message, self.size_bytes, self._lane = message, message.size_bytes, lane
        self.body_B = body_B
        self.injected = injected
        self.flow: Flow | None = None
        self.partner: Waiting | None = None
        self.left_s = 0.0
        self.is_held = False

    def withdraw(self) -> None:
        self._lane.withdraw(self)

    def wait_with(self, receiver: Waiting) -> None:
        self.partner = receiver
