"""Match arrived messages to waiting receivers: a data structure under every backend's `recv`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

import msgspec

from simcluster.payload import Message
from simcluster.transport import OWN_TAGS, Any_

R = TypeVar("R")

FEW = 16
"""A heap is rebuilt when it exceeds two entries per queue by more than this number."""


class PendingReceive(msgspec.Struct, Generic[R], eq=False):
    """A *receiver* that waits for a message from *source* with *tag*."""

    source: int | Any_
    tag: str | Any_
    receiver: R

    def accepts(self, message: Message) -> bool:
        source, tag = self.source, self.tag
        return (source == message.source or isinstance(source, Any_)) and (tag == message.tag or isinstance(tag, Any_))


@dataclass(slots=True)
class Mailbox(Generic[R]):
    """Queues of unread messages by (source, tag), and the waiting receivers.

    A receive from ANY source takes the matching message with the lowest arrival number. For each
    tag of such receives, *_first* has a heap of (arrival, source) of the first message of each
    queue. Entries of messages that are gone are removed when they reach the top.
    """

    _queues: dict[tuple[int, str], deque[Message]] = field(default_factory=dict)
    _waiting: list[PendingReceive[R]] = field(default_factory=list)
    _queued_bytes: dict[int, int] = field(default_factory=dict)
    _arrivals: int = 0
    _first: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def deliver(self, message: Message) -> R | None:
        """Return the first receiver that accepts *message*; if there is none, queue the message."""
        self._arrivals += 1
        message.arrival = self._arrivals
        return self.restore(message)

    def restore(self, message: Message) -> R | None:
        """Return the next receiver that accepts *message*, or queue it again in its old place.

        Call this also if *message* was matched with a receiver that was then cancelled.
        """
        for index, waiting in enumerate(self._waiting):
            if waiting.accepts(message):
                del self._waiting[index]
                return waiting.receiver
        queue = self._queues.setdefault((message.source, message.tag), deque())
        # Insert after all earlier arrivals: several messages returned in one turn keep their order.
        place = len(queue)
        while place and queue[place - 1].arrival > message.arrival:
            place -= 1
        queue.insert(place, message)
        if not place:
            self._note_first(message)
        self._count(message, +1)
        return None

    @property
    def arrivals(self) -> int:
        """The number of messages that have ever arrived: the arrival number of the last one."""
        return self._arrivals

    def take(self, source: int | Any_, tag: str | Any_, until: int | None = None) -> Message | None:
        """Remove and return the earliest queued message from *source* with *tag*, or None.

        With *until*, ignore messages with a greater arrival number.
        """
        if not self._queues:
            return None
        if not isinstance(source, Any_) and not isinstance(tag, Any_):
            key = (source, tag)
            if key not in self._queues:
                return None
        elif isinstance(source, Any_) and not isinstance(tag, Any_):
            if (first := self._first_source(tag)) is None:
                return None
            key = (first, tag)
        else:
            matching = (
                (queue[0].arrival, key)
                for key, queue in self._queues.items()
                if isinstance(source, Any_) or key[0] == source
            )
            if (earliest := min(matching, default=None)) is None:
                return None
            key = earliest[1]
        queue = self._queues[key]
        if until is not None and queue[0].arrival > until:
            return None
        message = queue.popleft()
        if queue:
            self._note_first(queue[0])
        else:
            del self._queues[key]
        self._count(message, -1)
        return message

    def _note_first(self, message: Message) -> None:
        """Add *message*, now the first of its queue, to the heap of its tag, if there is one."""
        if (first := self._first.get(message.tag)) is not None:
            heappush(first, (message.arrival, message.source))
            if len(first) > 2 * len(self._queues) + FEW:  # mostly stale: rebuild it on demand
                del self._first[message.tag]

    def _first_source(self, tag: str) -> int | None:
        """Return the source of the earliest queued message with *tag*, if any."""
        first = self._first.get(tag)
        if first is None:
            first = [(queue[0].arrival, key[0]) for key, queue in self._queues.items() if key[1] == tag]
            heapify(first)
            self._first[tag] = first
        while first:
            arrival, source = first[0]
            queue = self._queues.get((source, tag))
            if queue is not None and queue[0].arrival == arrival:
                return source
            heappop(first)
        del self._first[tag]
        return None

    def has(self, source: int, tag: str) -> bool:
        """Return whether a message from *source* with *tag* is queued."""
        return (source, tag) in self._queues

    def wait(self, source: int | Any_, tag: str | Any_, receiver: R) -> None:
        """Add *receiver*, which waits for *source* and *tag*, after all other receivers."""
        self._waiting.append(PendingReceive(source, tag, receiver))

    def withdraw(self, receiver: R) -> None:
        """Forget *receiver*, if it still waits."""
        self._waiting = [waiting for waiting in self._waiting if waiting.receiver is not receiver]

    @property
    def is_idle(self) -> bool:
        """Whether no message is queued, and receivers wait only for messages with OWN_TAGS."""
        return not self._queues and not any(self.awaited_messages())

    def awaits(self, message: Message) -> bool:
        """Return whether a receiver waits for *message*, which has not arrived yet."""
        return any(waiting.accepts(message) for waiting in self._waiting)

    def awaited_messages(self) -> Iterator[tuple[int | Any_, str | Any_]]:
        """Yield source and tag of each awaited message, except messages with OWN_TAGS."""
        for each in self._waiting:
            if isinstance(each.tag, Any_) or not each.tag.startswith(OWN_TAGS):
                yield each.source, each.tag

    def waiting_for(self, source: int) -> list[R]:
        """Remove and return the receivers that wait for *source*, not for ANY, in order."""
        hit = [waiting for waiting in self._waiting if waiting.source == source]
        self._waiting = [waiting for waiting in self._waiting if waiting.source != source]
        return [waiting.receiver for waiting in hit]

    def first_waiting_for_any(self) -> R | None:
        """Remove and return the first receiver that waits for any source, if there is one."""
        for index, waiting in enumerate(self._waiting):
            if isinstance(waiting.source, Any_):
                del self._waiting[index]
                return waiting.receiver
        return None

    def awaited(self) -> list[int | Any_]:
        """Return the source of each waiting receiver, including ANY, in order."""
        return [waiting.source for waiting in self._waiting]

    def drop(self, source: int) -> None:
        """Drop the queued messages from *source*."""
        for key in [key for key in self._queues if key[0] == source]:
            del self._queues[key]
        self._queued_bytes.pop(source, None)

    def queued_bytes(self, source: int) -> int:
        """Return the number of bytes from *source* that are queued."""
        return self._queued_bytes.get(source, 0)

    def describe(self) -> list[str]:
        """Describe the waiting receives, in order, for a deadlock report; those with OWN_TAGS are left out."""
        return [f"recv(source={source!r}, tag={tag!r})" for source, tag in self.awaited_messages()]

    def unread(self) -> list[tuple[int, str, int]]:
        """Return (source, tag, number) of queued messages without OWN_TAGS. Safe in any thread."""
        queues = list(self._queues.items())
        return [(source, tag, len(queue)) for (source, tag), queue in queues if not tag.startswith(OWN_TAGS)]

    def _count(self, message: Message, sign: int) -> None:
        total = self._queued_bytes.get(message.source, 0) + sign * message.size_bytes
        if total:
            self._queued_bytes[message.source] = total
        else:
            self._queued_bytes.pop(message.source, None)
