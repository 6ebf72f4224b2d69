"""Disturbed rounds of a calibration are told from the others, by planted disturbances. Times in seconds."""

from __future__ import annotations

import pytest

from simcluster.lab.calibrate.fit import quartiles
from simcluster.lab.calibrate.rounds import undisturbed
from simcluster.lab.calibrate.samples import FILL, LATE, STOLEN, SampleRow, sample_name

SERIES = [
    sample_name("stream", 1, 1024),
    sample_name("round", 1, 1024),
    sample_name("both", 1, 1024),
    sample_name("work", "w/a", 1.0),
]
NUMBERS = range(20)


def calm() -> list[SampleRow]:
    """Twenty rounds whose samples lie within 1 % of 0.1 s, with calm witnesses."""
    samples = [SampleRow(0, number, name, 0.1 + 1e-4 * (number % 10)) for number in NUMBERS for name in SERIES]
    witnesses = [
        SampleRow(0, number, sample_name(what, "node", 0), 1e-3) for number in NUMBERS for what in (LATE, STOLEN)
    ]
    return samples + witnesses


def planted(rows: list[SampleRow], number: int, names: list[str], seconds: float) -> list[SampleRow]:
    return [row._replace(seconds=seconds) if row.number == number and row.name in names else row for row in rows]


def test_calm_rounds_are_all_kept_and_witnesses_are_no_samples() -> None:
    found = undisturbed(calm())
    assert (found.kept, found.rejected, found.replaced) == (tuple(NUMBERS), {}, 0)
    assert {row.name for row in found.rows} == set(SERIES)
    assert sum(row.number == 3 for row in found.rows) == len(SERIES)


@pytest.mark.parametrize(
    ("what", "seconds", "reason"), [(LATE, 0.3, "woke up 300 ms late"), (STOLEN, 0.4, "400 ms of CPU")]
)
def test_a_round_is_rejected_on_the_word_of_a_witness(what: str, seconds: float, reason: str) -> None:
    found = undisturbed(planted(calm(), 7, [sample_name(what, "node", 0)], seconds))
    assert 7 not in found.kept
    assert len(found.kept) == 19
    assert reason in found.rejected[7]


def test_a_planted_disturbed_round_is_rejected_and_moves_no_number() -> None:
    # Two of its four samples take 30 ms more: 2 > 1/4 of 4.
    rows = planted(calm(), 11, SERIES[:2], 0.13)
    found = undisturbed(rows)
    assert set(found.rejected) == {11}
    assert found.rejected[11].startswith("2 of 4 samples")
    stream = [row.seconds for row in found.rows if row.name == SERIES[0]]
    assert max(stream) < 0.101
    assert quartiles(stream).value == pytest.approx(0.1005, abs=1e-4)


def test_what_filled_a_buffer_counts_in_a_disturbed_round_too() -> None:
    # Buffers are filled in three rounds of twenty. Were these set aside, nothing would be known of the buffer.
    rows = calm() + [SampleRow(0, number, sample_name(FILL, 1, 1024), 0.1) for number in (0, 8, 16)]
    for number in (0, 8, 16):
        rows = planted(rows, number, [sample_name(STOLEN, "node", 0)], 0.4)
    found = undisturbed(rows)
    assert set(found.rejected) == {0, 8, 16}
    assert [row.number for row in found.rows if row.name.startswith(FILL)] == [0, 8, 16]


def test_a_single_disturbed_sample_is_replaced_by_that_of_the_nearest_round() -> None:
    # One of four is no more than a quarter; rounds 3 and 5 are as near, and the earlier one is taken: 0.1 + 3e-4.
    found = undisturbed(planted(calm(), 4, SERIES[:1], 0.13))
    assert (found.rejected, found.replaced) == ({}, 1)
    (sample,) = [row for row in found.rows if (row.number, row.name) == (4, SERIES[0])]
    assert sample.seconds == pytest.approx(0.1003)


def test_a_machine_that_is_always_disturbed_is_measured_as_it_is() -> None:
    # 8 of 20 rounds are more than a third.
    rows = calm()
    for number in range(8):
        rows = planted(rows, number, [sample_name(STOLEN, "node", 0)], 0.4)
    found = undisturbed(rows)
    assert found.kept == tuple(NUMBERS)
    assert found.rejected == {}


def test_a_sample_that_is_quicker_than_the_others_is_no_disturbance() -> None:
    assert undisturbed(planted(calm(), 4, SERIES, 0.05)).kept == tuple(NUMBERS)
