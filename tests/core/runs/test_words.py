"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from simcluster.runs import words


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (0.0, "0 s"),
        (2e-9, "2.00 ns"),
        (12.34e-6, "12.3 us"),
        (0.048, "48.0 ms"),
        (3.214, "3.21 s"),
        (59.6, "59.6 s"),
        (125.0, "2 min 05 s"),
        (3599.7, "1 h 00 min"),
        (12_000.0, "3 h 20 min"),
    ],
)
def test_times_have_the_unit_that_suits_them(time_s: float | None, text: str) -> None:
    assert words.seconds(time_s) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (80_032_000, "80.0 MB")],
)
def test_sizes_are_decimal(size_bytes: int | None, text: str) -> None:
    assert words.size(size_bytes) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(None, "-"), (0.0, "0 %"), (0.8342, "83 %"), (0.042, "4.2 %"), (0.00211, "0.21 %"), (4e-6, "< 0.01 %")],
)
def test_small_shares_keep_two_digits(fraction: float | None, text: str) -> None:
    assert words.share(fraction) == text


def test_lists_are_joined_as_in_a_sentence() -> None:
    assert [words.listing(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_one_of_a_thing_is_singular() -> None:
    assert (words.plural(1, "step"), words.plural(1200, "step")) == ("1 step", "1,200 steps")


@pytest.mark.parametrize(
    ("joules", "text"), [(None, "-"), (0.0, "0 J"), (0.0123, "12.3 mJ"), (412.0, "412 J"), (3.6e6, "3.60 MJ")]
)
def test_energy_has_the_unit_that_suits_it(joules: float | None, text: str) -> None:
    assert words.energy(joules) == text


@pytest.mark.parametrize(
    ("price_usd", "text"), [(None, "-"), (0.0, "0.00 USD"), (0.000123, "0.000123 USD"), (1234.5, "1,234.50 USD")]
)
def test_a_price_keeps_three_digits_where_it_is_small(price_usd: float | None, text: str) -> None:
    assert words.price(price_usd) == text
