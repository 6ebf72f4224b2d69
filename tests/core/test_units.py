"""Units are exact, mandatory, and a wrong one is answered with the right spelling."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster import units
from simcluster.units import parse_bandwidth, parse_latency, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "bandwidth_Bps"),
    [
        ("1 Gbps", 125e6),
        ("1Gbps", 125e6),
        ("8 bps", 1.0),
        ("1 kbps", 125.0),
        ("100 Mbps", 12.5e6),
        ("1.5 Tbps", 187.5e9),
        ("3 B/s", 3.0),
        ("1 kB/s", 1e3),
        ("125 MB/s", 125e6),
        ("1e3 MB/s", 1e9),
        ("1 KiB/s", 1024.0),
        ("1 MiB/s", 1048576.0),
        ("1 GiB/s", 1073741824.0),
        ("0.537 Gbps", 67_125_000.0),
    ],
)
def test_bits_and_bytes_are_decimal_and_kib_is_binary(text: str, bandwidth_Bps: float) -> None:
    assert parse_bandwidth(text) == bandwidth_Bps


def test_125_mb_over_1_gbps_is_exactly_one_second() -> None:
    assert parse_size("125 MB") / parse_bandwidth("1 Gbps") == 1.0


@pytest.mark.parametrize(
    ("text", "latency_s"),
    [
        ("150 us", 150e-6),
        ("150 µs", 150e-6),
        ("150 μs", 150e-6),  # the Greek letter, which looks the same
        ("0.1 us", 1e-7),
        ("3 ns", 3e-9),
        ("2 ms", 2e-3),
        ("0 s", 0.0),
        ("1.5 min", 90.0),
        ("2 h", 7200.0),
    ],
)
def test_a_time_is_the_float_nearest_to_what_was_written(text: str, latency_s: float) -> None:
    assert parse_latency(text) == latency_s


def test_sizes_are_whole_bytes() -> None:
    assert parse_size("16 GB") == 16_000_000_000
    assert parse_size("64 KiB") == 65536
    assert parse_size("1.5 kB") == 1500
    with pytest.raises(ValueError, match=r"which is 0\.3 bytes, expected a whole number"):
        parse_size("0.3 B")


def test_compute_rates_are_flops_a_second() -> None:
    assert parse_rate("2.9 TFLOP/s") == 2.9e12
    assert parse_rate("100 GFLOP/s") == 1e11


@pytest.mark.parametrize(
    ("parse", "text", "meant"),
    [
        (parse_bandwidth, "1 Gbit/s", "did you mean 'Gbps'?"),
        (parse_bandwidth, "1 Gb/s", "did you mean 'Gbps'?"),
        (parse_bandwidth, "1 gbps", "did you mean 'Gbps'?"),
        (parse_bandwidth, "1 Gbs", "did you mean 'Gbps'?"),
        (parse_bandwidth, "1 MBps", "did you mean 'MB/s'?"),
        (parse_bandwidth, "1 GB", "did you mean 'GB/s'?"),
        (parse_bandwidth, "1 KB/s", "did you mean 'kB/s' (1000 bytes) or 'KiB/s' (1024)?"),
        (parse_bandwidth, "1 parsec", "one of B/s, GB/s, Gbps"),
        (parse_latency, "3 sec", "did you mean 's'?"),
        (parse_latency, "1 Gbps", "one of h, min, ms"),
        (parse_size, "3 KB", "did you mean 'kB' (1000 bytes) or 'KiB' (1024)?"),
        (parse_rate, "3 TFLOPS", "did you mean 'TFLOP/s'?"),
        (parse_rate, "3 gflops", "did you mean 'GFLOP/s'?"),
    ],
)
def test_an_unknown_unit_is_answered_with_the_one_meant(
    parse: Callable[[object], float], text: str, meant: str
) -> None:
    with pytest.raises(ValueError) as error:
        parse(text)
    assert repr(text) in str(error.value)
    assert meant in str(error.value)


@pytest.mark.parametrize("value", ["1", 1000, 1.5, "1e9"])
def test_a_missing_unit_is_never_guessed(value: object) -> None:
    with pytest.raises(ValueError, match=r"without a unit, expected a bandwidth with its unit, such as 1 Gbps"):
        parse_bandwidth(value)


@pytest.mark.parametrize(
    "value",
    [
        "-1 Gbps",
        "0 Gbps",
        "nan Gbps",
        "inf Gbps",
        "inf",
        math.nan,
        math.inf,
        None,
        True,
        [],
        {},
        "",
        "Gbps",
        "1 Gbps x",
        "1,5 Gbps",
        "1_0 Gbps",
        "٣ Gbps",
        "1" * 200 + " bps",
        "1e-399 bps",
        "1e399 bps",
        "1e9999 bps",
    ],
)
def test_what_is_no_positive_number_is_refused(value: object) -> None:
    with pytest.raises(units.UnitError):
        parse_bandwidth(value)


def test_a_huge_exponent_is_refused_without_being_computed() -> None:
    with pytest.raises(ValueError, match="time"):
        parse_latency("1e999999999999 s")


def test_people_read_four_digits() -> None:
    assert units.format_bandwidth(125e6) == "1 Gbps"
    assert units.format_bandwidth(14.625e6) == "117 Mbps"
    assert units.format_bandwidth(99_999 * 125e3) == "100 Gbps"  # 99.999 Gbps
    assert units.format_latency(150e-6) == "150 us"
    assert units.format_latency(0.0) == "0 s"
    assert units.format_latency(7200.0) == "7200 s"
    assert units.format_size(1500) == "1.5 kB"
    assert units.format_rate(2.9e12) == "2.9 TFLOP/s"
    assert units.format_memory_bandwidth(120e9) == "120 GB/s"


def test_the_shortest_exact_text_is_written() -> None:
    assert units.write_bandwidth(125e6) == "1 Gbps"
    assert units.write_latency(1e-7) == "0.1 us"
    assert units.write_size(65536) == "64 KiB"
    assert units.write_rate(1e11) == "100 GFLOP/s"


positive = st.floats(min_value=1e-300, max_value=1e300)


@given(positive)
def test_a_written_quantity_is_read_back_to_the_bit(value: float) -> None:
    assert parse_bandwidth(units.write_bandwidth(value)) == value
    assert parse_latency(units.write_latency(value)) == value
    assert parse_rate(units.write_rate(value)) == value


@given(st.integers(min_value=0, max_value=2**63))
def test_a_written_size_is_read_back_equal(size_bytes: int) -> None:
    assert parse_size(units.write_size(size_bytes)) == size_bytes


@given(st.floats(min_value=1e-9, max_value=1e18))
def test_a_formatted_quantity_is_right_to_four_digits(value: float) -> None:
    assert parse_latency(units.format_latency(value)) == pytest.approx(value, rel=5.01e-4)
    if value >= 1:
        assert parse_bandwidth(units.format_bandwidth(value)) == pytest.approx(value, rel=5.01e-4)


@pytest.mark.slow
@given(st.sampled_from(sorted(units.BANDWIDTHS)), st.integers(min_value=1, max_value=10**9))
def test_whole_numbers_of_every_unit_are_exact(unit: str, count: int) -> None:
    assert parse_bandwidth(f"{count} {unit}") == float(count * units.BANDWIDTHS[unit])


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_amount, "13 MFLOP", 13e6),
        (units.parse_amount, "13090816 FLOP", 13_090_816.0),
        (units.parse_power, "500 mW", 0.5),
        (units.parse_power, "0.04 kW", 40.0),
        (units.parse_power, "0 W", 0.0),
        (units.parse_price, "0.35 USD/h", 0.35),
        (units.parse_price, "0 USD/h", 0.0),
    ],
)
def test_amounts_of_work_powers_and_prices_have_units_too(
    parse: Callable[[object], float], text: str, value: float
) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (units.parse_amount, "0 FLOP", "zero"),
        (units.parse_amount, "13 MFLOPs", "did you mean 'MFLOP'?"),
        (units.parse_power, "5", "without a unit"),
        (units.parse_power, "5 watts", "did you mean 'W'?"),
        (units.parse_power, "-5 W", "negative"),
        (units.parse_price, "3 EUR/h", "no unit of price"),
        (units.parse_bandwidth_or_zero, "down", "such as 1 Gbps, 125 MB/s or, for a link that is down, 0 bps"),
        (units.parse_bandwidth_or_zero, "3 KB/s", "did you mean 'kB/s'"),
        (units.parse_price, "3 $", "did you mean 'USD/h'?"),
    ],
)
def test_a_wrong_amount_power_or_price_is_answered_with_the_right_spelling(
    parse: Callable[[object], float], text: str, words: str
) -> None:
    with pytest.raises(units.UnitError) as error:
        parse(text)
    assert words in str(error.value)


@given(st.integers(1, 10**20))
def test_an_amount_of_work_is_written_whole_and_reads_back(flops: int) -> None:
    text = units.write_amount(flops)
    assert "." not in text
    assert units.parse_amount(text) == float(flops)
