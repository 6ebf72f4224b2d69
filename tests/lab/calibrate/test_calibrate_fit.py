"""From samples to numbers, by hand arithmetic: latencies in seconds, sizes in bytes."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lab.calibrate.fit import (
    MeasuredValue,
    WayFit,
    bottlenecks,
    least_bandwidths,
    middle,
    quartiles,
    spread_over_links,
)
from simcluster.lab.calibrate.fit import fit_way as fit_both
from simcluster.lab.calibrate.handling import factor_of_handling
from simcluster.lab.calibrate.samples import (
    BURST_MESSAGES,
    FILL_MESSAGES,
    HANDLED,
    OF_PAIRS,
    STREAM_MESSAGES,
    PairSamples,
    SampleRow,
    pairs_of,
    rows_of,
    sample_name,
)
from simcluster.lab.calibrate.samples import work_of as work_samples_of
from simcluster.runs.recorder import Recorder


def samples(
    startup_s: float, bandwidth_Bps: float, send_s: float = 0.0, gap_s: float = 0.0, ack: float = 0.0
) -> PairSamples:
    """What a way of exactly these numbers gives; the sender waits for nothing but its own overhead."""
    moving_s = 100_000 / bandwidth_Bps
    pair: PairSamples = {what: {} for what in OF_PAIRS}
    pair["round"] = {size: [2 * (startup_s + size / bandwidth_Bps)] * 3 for size in (0, 1000, 100_000)}
    pair["stream"][100_000] = [2 * startup_s + STREAM_MESSAGES * moving_s] * 3
    # behind the first message each further one takes 1 + ack times as long as alone
    pair["both"][100_000] = [(STREAM_MESSAGES - 1) * moving_s * (1 + ack)] * 3
    pair["fill"][100_000] = [FILL_MESSAGES * moving_s]
    pair["sends"][0] = [BURST_MESSAGES * send_s] * 3
    pair["burst"][0] = [2 * startup_s + (BURST_MESSAGES - 1) * gap_s] * 3
    return pair


def fit_way(there: PairSamples, back: PairSamples | None = None) -> WayFit:
    """A way whose ends are alike, unless *back* is given."""
    return fit_both(0, 1, there, back or there)


def test_overheads_belong_to_the_end_that_has_them() -> None:
    there, back = samples(8e-3, 1e6, send_s=1e-3, gap_s=4e-3), samples(8e-3, 1e6, send_s=2e-3, gap_s=3e-3)
    way = fit_way(there, back)
    assert [value.value for value in way.send_overheads_s] == pytest.approx([1e-3, 2e-3])
    # what comes in at a was sent by b
    assert [value.value for value in way.recv_overheads_s] == pytest.approx([3e-3, 4e-3])
    # a round is 1 + L + 4 and 2 + L + 3 ms, half of it 8 ms
    assert way.latency_s == pytest.approx(3e-3)


def test_a_ways_numbers_are_read_off() -> None:
    way = fit_way(samples(1e-3, 1e6, send_s=1e-4, gap_s=2e-4, ack=0.25))
    assert way.startup_s.value == pytest.approx(1e-3)
    assert way.bandwidth_Bps.value == pytest.approx(1e6)
    assert (way.send_overheads_s[0].value, way.recv_overheads_s[1].value) == pytest.approx((1e-4, 2e-4))
    # what is left of 1 ms beside both overheads
    assert way.latency_s == pytest.approx(7e-4)
    # x + 0.25 x = 1
    assert way.both_ways.value == pytest.approx(0.8)
    assert way.misfit == pytest.approx(0.0, abs=1e-9)


def test_acknowledgements_are_read_off_the_faster_direction_and_half_duplex_off_the_slower() -> None:
    there, back = samples(0.0, 1e6, ack=0.3), samples(0.0, 1e6, ack=0.02)
    # 1 / 1.3 = 0.77 is a direction whose acknowledgements queue after data.
    assert fit_way(there, back).both_ways.value == fit_way(back, there).both_ways.value == pytest.approx(1 / 1.02)
    # On one medium, a direction that is served first may look fast: the other one has waited for it.
    there, back = samples(0.0, 1e6, ack=1.0), samples(0.0, 1e6, ack=0.4)
    assert fit_way(there, back).both_ways.value == pytest.approx(0.5)


def test_what_had_not_left_when_the_last_send_returned_is_the_buffer() -> None:
    there, back = samples(0.0, 1e6), samples(0.0, 1e6)
    there["fill"][100_000] = [0.25]  # of 0.6 MB at 1 MB/s, 0.25 MB had left
    assert fit_way(there, back).send_buffers_bytes == pytest.approx((350_000, 0.0), abs=1e-6)


def test_a_long_message_that_is_slower_than_the_numbers_say_is_told() -> None:
    pair = samples(0.0, 1e6)
    pair["round"][100_000] = [2 * 0.12] * 3  # 0.1 s by the stream
    pair["stream"][100_000] = [0.12 + (STREAM_MESSAGES - 1) * 0.1] * 3
    assert fit_way(pair).misfit == pytest.approx(0.2)


def test_a_pause_of_the_machine_now_and_then_changes_no_number() -> None:
    pair, calm = samples(1e-3, 1e6), fit_way(samples(1e-3, 1e6))
    pair["round"][0] = [*pair["round"][0], 5.0]
    pair["stream"][100_000] = [*pair["stream"][100_000], 9.0]
    disturbed = fit_way(pair)
    assert disturbed.startup_s.value == calm.startup_s.value
    assert disturbed.bandwidth_Bps.value == pytest.approx(calm.bandwidth_Bps.value)
    assert disturbed.startup_s.high > calm.startup_s.high


def test_overheads_larger_than_the_start_up_leave_no_negative_latency() -> None:
    assert fit_way(samples(1e-4, 1e6, send_s=1e-4, gap_s=1e-4)).latency_s == 0.0


def test_the_middle_lies_between_its_bounds() -> None:
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (quartiles([5.0, 4.0, 3.0, 2.0, 1.0]))
    assert (quartiles([1.0, 2.0, 3.0, 4.0, 5.0]).low, quartiles([1.0, 2.0, 3.0, 4.0, 5.0]).high) == (2.0, 4.0)
    assert (middle([3.0, 1.0, 2.0]).value, middle([3.0, 1.0, 2.0]).low, middle([3.0, 1.0, 2.0]).high) == (2.0, 1.0, 3.0)


STAR = [list(pair) for pair in combinations(range(4), 2)]
"""Four spokes; way i-j crosses spokes i and j."""


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_stars_latencies_follow_from_its_ways_whatever_was_expected(true_s: list[float]) -> None:
    ways_s = [true_s[i] + true_s[j] for i, j in STAR]
    assert spread_over_links(STAR, ways_s, [0.5] * 4) == pytest.approx(true_s, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_no_latency_is_ever_negative(ways_s: list[float], expected_s: list[float]) -> None:
    found = spread_over_links(STAR, ways_s, expected_s)
    assert all(latency_s >= 0 and math.isfinite(latency_s) for latency_s in found)


def test_two_links_that_are_only_seen_together_keep_what_was_expected_apart_from_the_sum() -> None:
    # 0.1 and 0.3 expected, 0.6 measured: 0.1 more for each
    assert spread_over_links([[0, 1]], [0.6], [0.1, 0.3]) == pytest.approx([0.2, 0.4])


def test_a_link_that_would_be_negative_is_nothing_and_the_other_has_it_all() -> None:
    # 0.1 and 0.9 expected, 0.1 measured: 0.45 less for each would make the first negative
    assert spread_over_links([[0, 1]], [0.1], [0.1, 0.9]) == pytest.approx([0.0, 0.1])


def test_a_link_is_as_fast_as_the_ways_that_it_slows_down() -> None:
    # spoke 3 has 2, the others 5
    rates = [2.0 if 3 in way else 5.0 for way in STAR]
    least_Bps = least_bandwidths(STAR, rates, 4)
    assert least_Bps == [5.0, 5.0, 5.0, 2.0]
    telling = bottlenecks(STAR, least_Bps)
    assert [[rates[way] for way in ways] for ways in telling] == [[5.0, 5.0]] * 3 + [[2.0] * 3]


def test_of_a_link_that_slows_nobody_down_only_a_least_bandwidth_is_known() -> None:
    # link 1 lies between links 0 and 2, and all that crosses it crosses one of those
    ways, rates = [[0, 1], [1, 2], [0, 1, 2]], [3.0, 4.0, 3.0]
    assert least_bandwidths(ways, rates, 4) == [3.0, 4.0, 4.0, 0.0]
    assert bottlenecks(ways, least_bandwidths(ways, rates, 4))[1] == [1]
    for ways, rates, expected in (
        ([[0, 1], [0]], [3.0, 3.0], [[0, 1], [0]]),
        ([[0, 1], [1], [0]], [3.0, 9.0, 3.0], [[0, 2], [1]]),
    ):
        assert bottlenecks(ways, least_bandwidths(ways, rates, 2)) == expected


def test_samples_come_back_from_a_nodes_record_as_they_were_noted() -> None:
    recorder = Recorder(1, "b", lambda: 0.0)
    recorder.metric_at(0.0, 0, sample_name("round", 2, 1024), 0.5)
    recorder.metric_at(0.0, 1, sample_name("round", 2, 1024), 0.6)
    recorder.metric_at(0.0, 0, sample_name("burst", 3, 0), 0.1)
    recorder.metric_at(0.0, 0, sample_name("work", "mnist_mlp/gradient", 1e6), 0.01)
    rows = rows_of([recorder.record])
    pairs = pairs_of(rows)
    assert list(pairs) == [(1, 2), (1, 3)]
    assert (pairs[1, 2]["round"], pairs[1, 3]["burst"]) == ({1024: [0.5, 0.6]}, {0: [0.1]})
    assert work_samples_of(rows, 1) == {"mnist_mlp/gradient": {1_000_000: [0.01]}}


@pytest.mark.parametrize(("pattern", "spent_s", "expected"), [("ring", 1.2e-3, 2.0), ("star", 0.8e-3, 2.25)])
def test_messages_in_steps_take_more_of_the_processor_than_in_a_burst(
    pattern: str, spent_s: float, expected: float
) -> None:
    # Two nodes, 0.1 ms to send and 0.1 ms to receive, 1 GB/s. 200 kB keep a core busy for 0.2 ms at either end.
    # Ring: each sends two shares of 100 kB, 4 messages in all, 0.8 ms of overheads and 0.8 ms of bytes: of 2.4 ms of
    # both event loops, 1.6 ms remain. Star: one message each way, 0.4 ms and 0.8 ms: of 1.7 ms, 0.9 ms remain.
    spent = {"ring": [spent_s, spent_s], "star": [spent_s, 0.9e-3]}[pattern]
    rows = [SampleRow(rank, 0, sample_name(HANDLED, pattern, 200_000), seconds) for rank, seconds in enumerate(spent)]
    way, overhead = fit_way(samples(1e-3, 1e9)), MeasuredValue(1e-4, 1e-4, 1e-4)
    assert factor_of_handling(rows, [way], [(overhead, overhead)] * 2) == pytest.approx(expected)
    assert factor_of_handling([], [way], [(overhead, overhead)] * 2) == 1.0
