"""Lines cross where they are drawn to cross, on straight and on logarithmic axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcluster.lab.reports.sweeps.lines import Crossing, crossings


def test_on_straight_axes_a_crossing_is_where_the_segments_meet() -> None:
    # From 1 to 3 one falls 10 -> 2 and the other rises 4 -> 8: 10 - 4 (x - 1) = 4 + 2 (x - 1) at x = 2, y = 6.
    found = crossings([1, 3], {"falling": [10, 2], "rising": [4, 8]}, x_is_log=False, y_is_log=False)
    assert found == [Crossing(2.0, 6.0, "rising", "falling", True)]


def test_on_logarithmic_axes_it_is_interpolated_in_the_logarithm() -> None:
    # y = 1000 / x from 10 to 1000 and y = 10 everywhere meet at x = 100, where straight axes would have 802.
    lines = {"1/x": [100, 1], "flat": [10, 10]}
    (found,) = crossings([10, 1000], lines, x_is_log=True, y_is_log=True)
    assert (found.place, found.height) == pytest.approx((100, 10))
    (straight,) = crossings([10, 1000], lines, x_is_log=False, y_is_log=False)
    assert straight.place == pytest.approx(10 + 990 * 90 / 99)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(-3, 3), st.floats(-3, 3))
def test_power_laws_cross_where_algebra_says(a: float, b: float, p: float, q: float) -> None:
    """a x^p = b x^q at x = (b / a)^(1 / (p - q)), whatever points they are sampled at."""
    assume(abs(p - q) > 0.1)
    where = (b / a) ** (1 / (p - q))
    assume(1e-3 < where < 1e3)
    places = [1e-4, where / 3, where * 2, 1e4]
    lines = {"p": [a * x**p for x in places], "q": [b * x**q for x in places]}
    (found,) = crossings(places, lines, x_is_log=True, y_is_log=True)
    assert math.log(found.place) == pytest.approx(math.log(where), abs=1e-6)
    assert (found.before, found.after) == (("p", "q") if p > q else ("q", "p"))


def test_lines_that_touch_or_have_a_gap_in_between_do_not_cross() -> None:
    touching = {"a": [1, 2, 1], "b": [3, 2, 3]}
    assert crossings([1, 2, 3], touching, x_is_log=False, y_is_log=False) == []
    gap = {"a": [1, math.nan, 3], "b": [2, 2, 2]}
    assert crossings([1, 2, 3], gap, x_is_log=False, y_is_log=False) == []


def test_lines_that_are_one_for_a_while_cross_where_that_begins() -> None:
    lines = {"a": [1, 2, 2, 5], "b": [3, 2, 2, 4]}
    (found,) = crossings([1, 2, 3, 4], lines, x_is_log=False, y_is_log=False)
    assert found == Crossing(2, 2, "a", "b", True)


def test_a_crossing_above_a_third_line_changes_nothing_of_who_is_lowest() -> None:
    lines = {"a": [4, 6], "b": [6, 4], "low": [1, 1]}
    assert [c.is_lowest for c in crossings([0, 1], lines, x_is_log=False, y_is_log=False)] == [False]
    lines["low"] = [1, math.nan]  # which is nowhere but at its point
    assert [c.is_lowest for c in crossings([0, 1], lines, x_is_log=False, y_is_log=False)] == [True]
