"""The order in which events reached a node: the record of it, packed, and read back.

A node's code is determined by the external events that reach it, their order, and the number of callbacks before each.
Callbacks wait in one FIFO queue on every loop, so this number places an event among them. An event is one entry in five
columns: its kind, the callbacks since the previous event, a number, the microseconds since the previous event, and for
a message the checksum of its content. Requests of the code that were answered at once (a clock, a send that left at
once) have no place in the order: they are a list of answers.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class EventKind(enum.IntEnum):
    """The kind of an event. Its number is a rank for the first three kinds, else the number of the request."""

    MESSAGE = 0
    ENDED = 1
    LOST = 2
    LEFT = 3
    FAILED = 4
    COMPUTED = 5
    TIMER = 6
    ASIDE = 7
    STOPPED = 8
    TOLD = 9


WORDS = {
    EventKind.MESSAGE: "a message from rank {}",
    EventKind.ENDED: "the end of rank {}",
    EventKind.LOST: "the loss of rank {}",
    EventKind.LEFT: "its send {} has left",
    EventKind.FAILED: "its send {} has failed",
    EventKind.COMPUTED: "its piece of work {} is done",
    EventKind.TIMER: "its timer {}",
    EventKind.ASIDE: "its checkpoint {} is kept",
    EventKind.STOPPED: "it is stopped from outside",
    EventKind.TOLD: "it is told to leave",
}
COUNTED = (EventKind.LEFT, EventKind.FAILED, EventKind.COMPUTED, EventKind.TIMER, EventKind.ASIDE)
"""Kinds with numbers that mostly rise by one; stored as differences."""

CHUNK_EVENTS = 32_768
"""A chunk is packed and handed over at this number of events,"""
CHUNK_S = 2.0
"""or this long after its first event: a node that dies loses what it has not handed over."""


@dataclass
class EventColumns:
    """The columns while a node runs."""

    kinds: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)


@dataclass
class ImmediateAnswers:
    """Immediate answers to the node's code, and withdrawn requests; numbers count sends or pieces of work from 1.

    *reads* are readings of the clock. Sends: *waited* did not leave at once, *withdrawn* were cancelled before they
    began to leave, *refused* failed at once, with the reason. Work: *names* and *took_s* of the pieces that ran, in
    order; *never_ran* was cancelled before. *reasons* are those of LOST and FAILED events, in order.
    """

    reads: list[float] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    never_ran: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)


@dataclass
class EventOrder:
    """One node's whole order: *callbacks* is the number that it ran, None if the node never reported it."""

    events: EventColumns = field(default_factory=EventColumns)
    answers: ImmediateAnswers = field(default_factory=ImmediateAnswers)
    callbacks: int | None = None

    @property
    def whole(self) -> bool:
        return self.callbacks is not None


class IntegerColumn(msgspec.Struct, array_like=True, frozen=True):
    """Integers in as few bytes each as the largest one needs."""

    kind: str
    content: bytes


class OrderChunk(msgspec.Struct, array_like=True, frozen=True):
    """A stored part of an order. The first event's differences are from *first_count* and *first_s*."""

    first_count: int
    first_s: float
    kinds: bytes
    gaps: IntegerColumn
    numbers: IntegerColumn
    steps_us: IntegerColumn
    digests: bytes
    reads: bytes
    waited: IntegerColumn
    withdrawn: list[int]
    refused: dict[int, str]
    never_ran: list[int]
    reasons: list[str]
    names: list[str]
    named: IntegerColumn
    took_us: IntegerColumn
    callbacks: int | None


class DamagedOrder(ValueError):
    """Bytes that are not a valid order."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OrderChunk)


def pack(events: EventColumns, answers: ImmediateAnswers, callbacks: int | None = None) -> bytes:
    """Return a compressed chunk."""
    counts = np.array(events.counts, np.int64)
    since_s = np.array(events.times_s) - (events.times_s[0] if events.times_s else 0.0)
    times_us: Ints = np.round(since_s * 1e6).astype(np.int64)
    names = list(dict.fromkeys(answers.names))
    place = {name: index for index, name in enumerate(names)}
    waited: Ints = np.array([0, *answers.waited], np.int64)
    chunk = OrderChunk(
        events.counts[0] if events.counts else 0,
        events.times_s[0] if events.times_s else 0.0,
        np.array(events.kinds, np.uint8).tobytes(),
        _column(np.diff(counts)),
        _column(_differences(events.kinds, events.numbers)),
        _column(np.diff(times_us)),
        np.array(events.digests, "<u4").tobytes(),
        np.array(answers.reads, "<f8").tobytes(),
        _column(np.diff(waited)),
        answers.withdrawn,
        answers.refused,
        answers.never_ran,
        answers.reasons,
        names,
        _column(np.array([place[name] for name in answers.names], np.int64)),
        _column(np.round(np.array(answers.took_s) * 1e6).astype(np.int64)),
        callbacks,
    )
    return zlib.compress(_encoder.encode(chunk))


def unpack(chunks: Iterable[bytes]) -> EventOrder:
    """Return the order that *chunks*, in sequence, form. Raises DamagedOrder."""
    order = EventOrder()
    try:
        for packed in chunks:
            _add(order, _decoder.decode(zlib.decompress(packed)))
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise DamagedOrder(f"{type(error).__name__}: {error}") from None
    return order


def _add(order: EventOrder, chunk: OrderChunk) -> None:
    events, answers = order.events, order.answers
    kinds = [EventKind(kind) for kind in chunk.kinds]
    columns = [_ints(column) for column in (chunk.gaps, chunk.numbers, chunk.steps_us)]
    digests = np.frombuffer(chunk.digests, "<u4").tolist()
    expected = [max(len(kinds) - 1, 0), len(kinds), max(len(kinds) - 1, 0), kinds.count(EventKind.MESSAGE)]
    if [*map(len, columns), len(digests)] != expected:
        raise DamagedOrder(f"columns of {[*map(len, columns), len(digests)]} entries, expected {expected}")
    if not chunk.first_s >= 0 or columns[2].min(initial=0) < 0:
        raise DamagedOrder("times that start before 0, or decrease")
    if kinds:
        events.counts += (chunk.first_count + np.cumsum(np.concatenate([[0], columns[0]]))).tolist()
        events.times_s += (chunk.first_s + np.cumsum(np.concatenate([[0], columns[2]])) / 1e6).tolist()
    events.kinds += kinds
    events.numbers += _sums(kinds, columns[1])
    events.digests += digests
    answers.reads += np.frombuffer(chunk.reads, "<f8").tolist()
    answers.waited += np.cumsum(_ints(chunk.waited)).tolist()
    answers.withdrawn += chunk.withdrawn
    answers.refused |= chunk.refused
    answers.never_ran += chunk.never_ran
    answers.reasons += chunk.reasons
    answers.names += [chunk.names[index] for index in _ints(chunk.named).tolist()]
    answers.took_s += (_ints(chunk.took_us) / 1e6).tolist()
    order.callbacks = chunk.callbacks


def _differences(kinds: Sequence[int], numbers: Sequence[int]) -> Ints:
    """Return *numbers*; for the COUNTED kinds, as differences from the previous number of the same kind."""
    found, of = np.array(numbers, np.int64), np.array(kinds, np.int64)
    for kind in COUNTED:
        mask = of == kind
        found[mask] = np.diff(found[mask], prepend=0)
    return found


def _sums(kinds: Sequence[int], differences: Ints) -> list[int]:
    found, of = differences.copy(), np.array(kinds, np.int64)
    for kind in COUNTED:
        mask = of == kind
        found[mask] = np.cumsum(found[mask])
    return [int(number) for number in found]


def _column(numbers: Ints) -> IntegerColumn:
    for kind in ("<i1", "<i2", "<i4"):
        info = np.iinfo(kind)
        if not len(numbers) or (numbers.min() >= info.min and numbers.max() <= info.max):
            return IntegerColumn(kind, numbers.astype(kind).tobytes())
    return IntegerColumn("<i8", numbers.astype("<i8").tobytes())


def _ints(column: IntegerColumn) -> Ints:
    if column.kind not in ("<i1", "<i2", "<i4", "<i8"):
        raise DamagedOrder(f"a column of {column.kind!r}")
    found: Any = np.frombuffer(column.content, column.kind).astype(np.int64)
    return found  # type: ignore[no-any-return]
