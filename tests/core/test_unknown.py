"""The number that nobody knows: arithmetic keeps it so, and whoever would decide by it is stopped."""

import math

import pytest

from simcluster.unknown_number import UNKNOWN, Undecidable, UnknownNumber


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: 2 * x / 3,
        lambda x: 1 / x,
        lambda x: -(abs(x) ** 2),
        lambda x: sum([1.0, x, 2.0]) / 3,
    ],
)
def test_what_arithmetic_makes_of_it_is_unknown_too(compute):
    assert isinstance(compute(UNKNOWN), UnknownNumber)


@pytest.mark.parametrize(
    "decide",
    [
        lambda x: x < 1,
        lambda x: x >= 1,
        lambda x: max(x, 1),
        lambda x: sorted([2.0, x]),
        lambda x: bool(x),
        lambda x: int(x),
        lambda x: round(x),
        lambda x: math.ceil(x),
        lambda x: x // 2,
    ],
)
def test_to_order_it_or_to_make_it_whole_is_to_decide_by_it(decide):
    with pytest.raises(Undecidable, match="numerics: none"):
        decide(UNKNOWN)


def test_it_is_nan_to_those_who_only_print_or_pass_it_on():
    assert math.isnan(UNKNOWN)
    assert math.isnan(math.exp(UNKNOWN))
    assert f"{UNKNOWN:.2f}" == "nan"
    assert repr(UNKNOWN) == "unknown"
