"""The order in which events reached a node: pack it into bytes, and unpack it.

A node's behaviour is determined by the external events that reach it, their order, and the number
of callbacks before each event. Every event loop runs its callbacks from one FIFO queue, so this
number places an event among them. An event is one entry in five columns: its kind, the callbacks
since the previous event, a number, the microseconds since the previous event, and for a message the
checksum of its content. Requests of the node that are answered at once (a reading of the clock, a
send that leaves immediately) are not events: their answers are kept in separate lists.
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
    """The kind of an event.

    An event's number is a rank for the first three kinds, else the number of a request.
    """

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
"""Kinds with numbers that mostly rise by one: they are stored as differences, which are small."""

CHUNK_EVENTS = 32_768
"""The number of events after which a chunk is handed over."""

CHUNK_S = 2.0
"""The time after its first event at which a chunk is handed over: a dying node loses its last one."""


@dataclass
class EventColumns:
    """The columns of a node's events, as lists that grow while the node runs."""

    kinds: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)


@dataclass
class ImmediateAnswers:
    """Answers that a node got at once, and requests that it withdrew.

    Sends and pieces of work are numbered from 1.

    - *reads*: the times that the node read from the clock.
    - *waited*: the sends that did not leave at once. *withdrawn*: those that were cancelled before
      they began to leave.
    - *refused*: the sends that failed at once, with the reasons.
    - *names*, *took_s*: names and seconds of the pieces of work that ran, in order.
    - *never_ran*: the pieces of work that were cancelled before they began.
    - *reasons*: the reasons of the LOST and FAILED events, in order.
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
    """The order of one node's events.

    *callbacks* is the number of callbacks that ran, None if the node did not report its end.
    """

    events: EventColumns = field(default_factory=EventColumns)
    answers: ImmediateAnswers = field(default_factory=ImmediateAnswers)
    callbacks: int | None = None

    @property
    def whole(self) -> bool:
        return self.callbacks is not None


class IntegerColumn(msgspec.Struct, array_like=True, frozen=True):
    """A column of integers of the numpy type *kind*, the smallest that holds all of them."""

    kind: str
    content: bytes


class OrderChunk(msgspec.Struct, array_like=True, frozen=True):
    """A stored part of an order.

    Counts and times are stored as differences, which start from *first_count* and *first_s*.
    """

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
    """Return *events* and *answers* as a compressed chunk; only the last chunk has *callbacks*."""
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
    """Return the order that the sequence of *chunks* forms.

    Raise DamagedOrder if any chunk is invalid.
    """
    order = EventOrder()
    try:
        for packed in chunks:
            _add(order, _decoder.decode(zlib.decompress(packed)))
    except (zlib.error, msgspec.MsgspecError, ValueError, TypeError, IndexError) as error:
        raise DamagedOrder(f"{type(error).__name__}: {error}") from None
    return order


def _add(order: EventOrder, chunk: OrderChunk) -> None:
    events = order.events
    answers = order.answers
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
    """Return *numbers*, with those of COUNTED kinds as differences from the previous one of the
    kind."""
    found = np.array(numbers, np.int64)
    of = np.array(kinds, np.int64)
    for kind in COUNTED:
        mask = of == kind
        found[mask] = np.diff(found[mask], prepend=0)
    return found


def _sums(kinds: Sequence[int], differences: Ints) -> list[int]:
    found = differences.copy()
    of = np.array(kinds, np.int64)
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
