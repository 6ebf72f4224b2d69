"""Match arrived messages to waiting receivers. Pure: every backend's `recv` uses it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from simcluster.payload import Message
from simcluster.transport import OWN_TAGS, Any_

R = TypeVar("R")


@dataclass(slots=True)
class Awaited(Generic[R]):
    """A *receiver* that waits for a message from *source* with *tag*."""

    source: int | Any_
    tag: str | Any_
    receiver: R

    def accepts(self, message: Message) -> bool:
        source, tag = self.source, self.tag
        return (source == message.source or isinstance(source, Any_)) and (tag == message.tag or isinstance(tag, Any_))


@dataclass(slots=True)
class Mailbox(Generic[R]):
    """Messages queue by (source, tag) with their arrival number, so ANY finds the earliest of all."""

    _queues: dict[tuple[int, str], deque[Message]] = field(default_factory=dict)
    _waiting: list[Awaited[R]] = field(default_factory=list)
    _queued_bytes: dict[int, int] = field(default_factory=dict)
    _arrivals: int = 0

    def deliver(self, message: Message) -> R | None:
        """Return the first receiver that accepts *message*; if there is none, queue the message."""
        self._arrivals += 1
        message.arrival = self._arrivals
        return self.restore(message)

    def restore(self, message: Message) -> R | None:
        """Undo a match with a cancelled receiver: return the next receiver or requeue *message* in its old place."""
        for index, waiting in enumerate(self._waiting):
            if waiting.accepts(message):
                del self._waiting[index]
                return waiting.receiver
        queue = self._queues.setdefault((message.source, message.tag), deque())
        # After earlier arrivals: several messages given back in one turn keep their order.
        place = len(queue)
        while place and queue[place - 1].arrival > message.arrival:
            place -= 1
        queue.insert(place, message)
        self._count(message, +1)
        return None

    def take(self, source: int | Any_, tag: str | Any_) -> Message | None:
        """Remove and return the earliest queued message that matches, if any."""
        if not self._queues:
            return None
        if not isinstance(source, Any_) and not isinstance(tag, Any_):
            key = (source, tag)
            if key not in self._queues:
                return None
        else:
            matching = (
                (queue[0].arrival, key)
                for key, queue in self._queues.items()
                if (isinstance(source, Any_) or key[0] == source) and (isinstance(tag, Any_) or key[1] == tag)
            )
            if (earliest := min(matching, default=None)) is None:
                return None
            key = earliest[1]
        queue = self._queues[key]
        message = queue.popleft()
        if not queue:
            del self._queues[key]
        self._count(message, -1)
        return message

    def has(self, source: int, tag: str) -> bool:
        """Return whether a message from *source* with *tag* is queued."""
        return (source, tag) in self._queues

    def wait(self, source: int | Any_, tag: str | Any_, receiver: R) -> None:
        """Add *receiver* after those already waiting."""
        self._waiting.append(Awaited(source, tag, receiver))

    def withdraw(self, receiver: R) -> None:
        """Forget *receiver*, if it still waits."""
        self._waiting = [waiting for waiting in self._waiting if waiting.receiver is not receiver]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued and nothing waits."""
        return not self._queues and not self._waiting

    def waited_for(self, source: int) -> bool:
        """Return whether any receiver waits for *source* or for ANY."""
        return any(isinstance(waiting.source, Any_) or waiting.source == source for waiting in self._waiting)

    def waiting_for(self, source: int) -> list[R]:
        """Remove and return the receivers that wait for exactly *source*, in order."""
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
        """Return the sources waited for, including ANY, in order."""
        return [waiting.source for waiting in self._waiting]

    def drop(self, source: int) -> None:
        """Drop the queued messages from *source*."""
        for key in [key for key in self._queues if key[0] == source]:
            del self._queues[key]
        self._queued_bytes.pop(source, None)

    def queued_bytes(self, source: int) -> int:
        """Return the bytes from *source* that have arrived but not been received."""
        return self._queued_bytes.get(source, 0)

    def describe(self) -> list[str]:
        """Describe the waiting receives, in order, for a deadlock report; those with OWN_TAGS are left out."""
        shown = [w for w in self._waiting if isinstance(w.tag, Any_) or not w.tag.startswith(OWN_TAGS)]
        return [f"recv(source={w.source!r}, tag={w.tag!r})" for w in shown]

    def _count(self, message: Message, sign: int) -> None:
        total = self._queued_bytes.get(message.source, 0) + sign * message.size_bytes
        if total:
            self._queued_bytes[message.source] = total
        else:
            self._queued_bytes.pop(message.source, None)
