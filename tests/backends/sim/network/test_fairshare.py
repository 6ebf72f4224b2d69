"""Max-min rates: by hand, and by the law that only they keep, after any demands and capacities have changed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import star
from simcluster.topology.plain_flows import PlainFlow
from tests.backends.sim.network.test_network_laws import check_shares


def max_min_rates(
    routes: Sequence[Sequence[int]], capacities: Sequence[float], bounds: Sequence[float] | None = None
) -> list[float]:
    """Return the rate of every flow: *routes[f]* are the indices of the channels that flow f crosses."""
    channels = [Channel(str(number), capacity) for number, capacity in enumerate(capacities)]
    fair = FairShare()
    demands = [
        Demand([(channels[link], 1.0) for link in route], bounds[flow] if bounds else inf)
        for flow, route in enumerate(routes)
    ]
    for demand in demands:
        fair.join(demand)
    fair.settle()
    return [demand.rate_Bps for demand in demands]


def test_equal_flows_on_one_link_get_equal_shares() -> None:
    assert max_min_rates([[0], [0], [0]], [9.0]) == [3.0, 3.0, 3.0]


def test_a_parking_lot_shares_by_its_slowest_link() -> None:
    # Links 1, 2; a long flow over both, one on each. Link 0: 1/2 each. Link 1: what is left, 2 - 1/2.
    assert max_min_rates([[0, 1], [0], [1]], [1.0, 2.0]) == [0.5, 0.5, 1.5]


def test_a_bound_flow_leaves_the_rest_to_others() -> None:
    assert max_min_rates([[0], [0]], [10.0], [1.0, inf]) == [1.0, 9.0]


def test_a_flow_without_links_is_as_fast_as_its_bound() -> None:
    assert max_min_rates([[], []], [], [5.0, inf]) == [5.0, inf]


def test_no_flow_starves_however_far_capacities_lie_apart() -> None:
    rates = max_min_rates([[0, 1]] * 3 + [[1]] * 4, [1e-6, 1e15])
    assert min(rates) > 0


def test_only_what_changed_is_reported() -> None:
    # Two islands, and on the first one a demand that is bound to less than its share.
    a, b = Channel("a", 10.0), Channel("b", 10.0)
    fair = FairShare()
    bound, free, apart = Demand([(a, 1.0)], 1.0), Demand([(a, 1.0)]), Demand([(b, 1.0)])
    for demand in (bound, free, apart):
        fair.join(demand)
    fair.settle()
    late = Demand([(a, 1.0)])
    fair.join(late)
    # 9 B/s are halved. The free one stays on its channel, whose level falls; only the late one moves there.
    assert fair.settle() == ([a], [late])
    assert (bound.rate_Bps, free.rate_Bps, late.rate_Bps, apart.rate_Bps) == (1.0, 4.5, 4.5, 10.0)


@pytest.mark.parametrize("seed", range(5))
def test_flows_that_start_together_end_as_those_that_are_moved_one_by_one(seed: int) -> None:
    """Two more flows on a link elsewhere at the same instant keep the channel from taking all others at once."""
    chance = random.Random(seed)
    sizes = [float(chance.choice((10**6, 10**6, 3 * 10**6))) for _ in range(9)]
    # A share of n0's link is 125 MB/s / 9 = 14 MB/s; n1's link lets 1.25 MB/s pass.
    cluster = star(13, bandwidth=125e6, latency=25e-6)
    first, second, *others = cluster.links
    slow = replace(cluster, links=(first, replace(second, bandwidth_Bps=12.5e5), *others))
    pushes = [PlainFlow(f"n{number + 1}", "n0", size) for number, size in enumerate(sizes)]
    later = [PlainFlow("n1", "n0", 5e5, start_s=0.01), PlainFlow("n2", "n0", 5e5, start_s=0.02)]
    elsewhere = [PlainFlow("n10", "n12", 1e3), PlainFlow("n11", "n12", 1e3)]
    together = finish_times(slow, [*pushes, *later])
    assert together == finish_times(slow, [*pushes, *later, *elsewhere])[: len(pushes) + len(later)]


# Few channels, so that they fill up in each other's neighbourhood; equal numbers, so that levels tie.
CHANNELS = 6
uses = st.dictionaries(
    st.integers(0, CHANNELS - 1), st.sampled_from([1.0, 1.0, 1.0, 0.022, 2.0]), min_size=1, max_size=4
)
bounds = st.one_of(st.just(inf), st.just(inf), st.sampled_from([1.0, 3.0, 5.0]), st.floats(0.5, 50.0))
weights = st.sampled_from([1.0, 1.0, 1.0, 0.3, 7.0, 1e-3])
capacities = st.one_of(st.sampled_from([10.0, 10.0, 20.0, 0.0]), st.floats(0.5, 100.0))
join = st.tuples(st.just("join"), uses, bounds, weights)
changes = st.lists(
    st.one_of(
        join,
        join,
        st.tuples(st.just("leave"), st.integers(0, 60)),
        st.tuples(st.just("change"), st.integers(0, CHANNELS - 1), capacities),
        st.tuples(st.just("settle")),
        st.tuples(st.just("settle")),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(capacities, min_size=CHANNELS, max_size=CHANNELS), changes)
def test_rates_are_max_min_whatever_has_changed(capacities_Bps: list[float], history: list[tuple[Any, ...]]) -> None:
    channels = [Channel(str(number), capacity_Bps) for number, capacity_Bps in enumerate(capacities_Bps)]
    fair, demands = FairShare(), []
    for what, *how in [*history, ("settle",)]:
        if what == "join":
            demand = Demand([(channels[number], use) for number, use in how[0].items()], *how[1:])
            fair.join(demand)
            demands.append(demand)
        elif what == "leave" and demands:
            fair.leave(demands.pop(how[0] % len(demands)))
        elif what == "change":
            fair.change(channels[how[0]], how[1])
        elif what == "settle":
            fair.settle()
            check_shares(channels)
