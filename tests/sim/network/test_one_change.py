"""A full channel with one flow more or less, against the general way to settle rates: equal to the bit."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster_backends.sim.network.bundle import Bundle
from simcluster_backends.sim.network.fairshare import FairShare
from tests.sim.network.test_bundle import Push, Scenarios, Star, events


@given(Scenarios, st.booleans())
def test_one_change_settles_as_any(scenario: tuple[Any, ...], bundled: bool) -> None:
    takes = Bundle.takes if bundled else lambda bundle, flow: False
    with patch.object(Bundle, "takes", takes):
        found = events(scenario)
        with patch.object(FairShare, "_settle_one", lambda fair: None):
            assert events(scenario) == found


@given(
    st.lists(st.sampled_from([0.2, 0.3, 0.45, 1.0]), min_size=5, max_size=5), st.sampled_from([0.8, 1.0, 1.5]),
    st.lists(st.sampled_from([0.1, 0.25, 0.7, 1.3]), min_size=3, max_size=10),
)  # fmt: skip
def test_limits_come_into_play_as_flows_join_and_leave_one_by_one(
    capacities: list[float], shared_Bps: float, sizes_B: list[float]
) -> None:
    pushes = [Push(0.17 * number, number % 5, size_B, 1.0, None) for number, size_B in enumerate(sizes_B)]
    found = events((capacities, shared_Bps, 1.0, pushes, []))
    with patch.object(FairShare, "_settle_one", lambda fair: None):
        assert events((capacities, shared_Bps, 1.0, pushes, [])) == found


@pytest.mark.parametrize(("limit_Bps", "is_one"), [(1.0, True), (0.25, False)])
def test_a_third_flow_is_one_change_and_one_that_is_limited_is_not(limit_Bps: float, is_one: bool) -> None:
    star = Star([1.0, 1.0, limit_Bps], 1.0, 1.0)
    settle, found = FairShare._settle_one, []

    def noted(fair: FairShare) -> Any:
        found.append(settled := settle(fair))
        return settled

    def put(leaf: int) -> None:
        star.put(Push(0.0, leaf, 1.0, 1.0, None))

    with patch.object(FairShare, "_settle_one", noted):
        for leaf in range(3):
            star.clock.alarm_at(0.1 * leaf, put, leaf)
            star.clock.advance()
        star.clock.settle_now()
    assert (found[-1] is not None) == is_one
