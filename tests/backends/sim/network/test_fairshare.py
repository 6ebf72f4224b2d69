"""Max-min rates against hand arithmetic, and the certificate of max-min fairness on random networks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare
from simcluster_backends.sim.plain_flows import finish_times

from simcluster.topology import star
from simcluster.topology.plain_flows import PlainFlow


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


networks = st.integers(1, 6).flatmap(
    lambda links: st.tuples(
        st.lists(st.floats(1.0, 1e9), min_size=links, max_size=links),
        st.lists(
            st.tuples(
                st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True),
                st.one_of(st.just(inf), st.floats(0.5, 1e9)),
            ),
            min_size=1,
            max_size=12,
        ),
    )
)


@given(networks)
def test_every_flow_is_bound_or_has_a_full_link_on_which_none_is_faster(
    network: tuple[list[float], list[tuple[list[int], float]]],
) -> None:
    capacities, flows = network
    routes, bounds = [route for route, _ in flows], [bound for _, bound in flows]
    rates = max_min_rates(routes, capacities, bounds)
    load = [
        sum(rate for route, rate in zip(routes, rates, strict=True) if link in route) for link in range(len(capacities))
    ]
    for link, capacity in enumerate(capacities):
        assert load[link] <= capacity * (1 + 1e-9), "a link carries more than it can"
    for route, bound, rate in zip(routes, bounds, rates, strict=True):
        bottleneck = any(
            load[link] >= capacities[link] * (1 - 1e-9)
            and all(other <= rate * (1 + 1e-9) for r, other in zip(routes, rates, strict=True) if link in r)
            for link in route
        )
        assert rate == bound or bottleneck


@given(networks, st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(
    network: tuple[list[float], list[tuple[list[int], float]]], random: object
) -> None:
    capacities, flows = network
    order = list(range(len(flows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight = max_min_rates([r for r, _ in flows], capacities, [b for _, b in flows])
    shuffled = max_min_rates([flows[i][0] for i in order], capacities, [flows[i][1] for i in order])
    assert [shuffled[order.index(i)] for i in range(len(flows))] == pytest.approx(straight, rel=1e-9)


def assert_fair(channels: list[Channel], demands: list[Demand]) -> None:
    """No channel carries more than it can; every demand is bound or has a full channel with none at a higher level."""
    load = {c: sum(use * demand.rate_Bps for demand, use in c.demands.items()) for c in channels}
    for channel in channels:
        assert load[channel] <= channel.capacity_Bps * (1 + 1e-9)
    for demand in demands:
        level = demand.rate_Bps / demand.weight
        assert demand.rate_Bps == demand.bound_Bps or any(
            load[channel] >= channel.capacity_Bps * (1 - 1e-9)
            and all(other.rate_Bps / other.weight <= level * (1 + 1e-9) for other in channel.demands)
            for channel, _ in demand.uses
        )


changes = st.lists(
    st.one_of(
        st.tuples(
            st.just("join"),
            st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1.0, 1.0, 2.0])), min_size=1, max_size=3),
            st.one_of(st.just(inf), st.floats(0.5, 100.0)),
            st.sampled_from([1.0, 1.0, 0.3, 7.0]),
        ),
        st.tuples(st.just("leave"), st.integers(0, 30)),
        st.tuples(st.just("change"), st.integers(0, 4), st.floats(1.0, 100.0)),
        st.tuples(st.just("settle")),
    ),
    max_size=40,
)


@given(changes)
def test_rates_stay_fair_through_any_coming_and_going(history: list[tuple]) -> None:  # type: ignore[type-arg]
    channels = [Channel(str(number), 10.0 + 7.0 * number) for number in range(5)]
    fair, demands = FairShare(), []
    for what, *how in [*history, ("settle",)]:
        if what == "join":
            uses, bound, weight = how
            demand = Demand([(channels[n], use) for n, use in dict(uses).items()], bound, weight)
            fair.join(demand)
            demands.append(demand)
        elif what == "leave" and demands:
            fair.leave(demands.pop(how[0] % len(demands)))
        elif what == "change":
            fair.change(channels[how[0]], how[1])
        elif what == "settle":
            fair.settle()
            assert_fair(channels, demands)


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
