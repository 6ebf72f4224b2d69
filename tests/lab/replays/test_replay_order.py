"""The record of an order: packed small, read back as it was, refused when damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.runs.event_notes import Notes
from simcluster.runs.event_order import (
    CHUNK_EVENTS,
    COUNTED,
    DamagedOrder,
    EventColumns,
    EventKind,
    ImmediateAnswers,
    pack,
    unpack,
)

entries = st.lists(
    st.tuples(st.sampled_from(EventKind), st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**9)),
    max_size=40,
)


@given(entries, st.lists(st.floats(), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_what_is_packed_is_read_back(
    entries: list[tuple[EventKind, int, int, int]], reads: list[float], names: list[str]
) -> None:
    events, count, time_us = EventColumns(), 0, 0
    for kind, number, gap, step_us in entries:
        count, time_us = count + gap, time_us + step_us
        events.kinds.append(kind)
        events.counts.append(count)
        events.numbers.append(number)
        events.times_s.append(time_us / 1e6)
        if kind is EventKind.MESSAGE:
            events.digests.append(number % 2**32)
    waited = sorted({number for _, number, _, _ in entries})
    answers = ImmediateAnswers(reads, waited, waited[::2], {1: "gone"}, waited[1::2], names, names, [0.5] * len(names))

    found = unpack([pack(events, answers, 7)])
    assert (found.events.kinds, found.events.counts) == (events.kinds, events.counts)
    assert (found.events.numbers, found.events.digests) == (events.numbers, events.digests)
    # Times are whole microseconds since the first.
    assert found.events.times_s == pytest.approx(events.times_s, abs=1e-6)
    assert repr(found.answers.reads) == repr(reads)  # NaN and -0.0 too
    assert (found.answers.waited, found.answers.withdrawn) == (answers.waited, answers.withdrawn)
    assert (found.answers.never_ran, found.answers.refused) == (answers.never_ran, answers.refused)
    assert (found.answers.names, found.answers.took_s) == (names, answers.took_s)
    assert found.callbacks == 7


def test_chunks_are_handed_over_when_full_and_join_without_a_seam() -> None:
    times_s = iter(range(10**6))
    notes = Notes(lambda: next(times_s) / 1e6)
    for number in range(CHUNK_EVENTS + 10):
        notes.executed += 2
        notes.note(EventKind.COMPUTED, number)
    first = notes.take()
    assert len(first) == 1
    assert unpack(first).callbacks is None
    notes.end()
    notes.note(EventKind.COMPUTED, 0)  # too late
    whole = unpack([*first, *notes.take()])
    assert whole.events.numbers == list(range(CHUNK_EVENTS + 10))
    assert whole.events.counts == list(range(2, 2 * (CHUNK_EVENTS + 10) + 1, 2))
    assert whole.callbacks == 2 * (CHUNK_EVENTS + 10)


def test_what_is_older_than_two_seconds_is_handed_over_with_the_next_event() -> None:
    times_s = iter([0.0, 1.9, 2.1, 2.2])
    notes = Notes(lambda: next(times_s))
    for number, handed_over in enumerate([0, 0, 3, 0]):
        notes.note(EventKind.TIMER, number)
        assert len(unpack(notes.take()).events.kinds) == handed_over


def test_a_message_takes_about_six_bytes() -> None:
    # Its checksum takes four, which nothing compresses; when it came, between one and two.
    events = EventColumns()
    for number in range(10_000):
        events.kinds.append(EventKind.MESSAGE)
        events.counts.append(4 * number)
        events.numbers.append(number % 3)
        events.times_s.append((number * 100 + hash(number) % 7) / 1e6)
        events.digests.append(number * 2_654_435_761 % 2**32)
    assert 4.0 <= len(pack(events, ImmediateAnswers())) / 10_000 <= 6.5


@pytest.mark.parametrize("content", [b"", b"no order", pack(EventColumns(), ImmediateAnswers())[:-3]])
def test_bytes_that_are_no_order_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedOrder):
        unpack([content])


def test_columns_of_different_lengths_are_refused() -> None:
    events = EventColumns(
        kinds=[EventKind.LEFT, EventKind.LEFT], counts=[1, 2], numbers=[1, 2], times_s=[0.0, 1.0], digests=[3]
    )
    with pytest.raises(DamagedOrder, match="expected"):
        unpack([pack(events, ImmediateAnswers())])


@pytest.mark.parametrize("times_s", [[-1.0, 0.0], [1.0, 0.5]])
def test_times_that_begin_before_zero_or_go_back_are_refused(times_s: list[float]) -> None:
    events = EventColumns(kinds=[EventKind.LEFT, EventKind.LEFT], counts=[1, 2], numbers=[1, 2], times_s=times_s)
    with pytest.raises(DamagedOrder, match="times"):
        unpack([pack(events, ImmediateAnswers())])


def test_every_kind_counts_or_names_a_rank() -> None:
    assert set(COUNTED) | {
        EventKind.MESSAGE,
        EventKind.ENDED,
        EventKind.LOST,
        EventKind.STOPPED,
        EventKind.TOLD,
    } == set(EventKind)
