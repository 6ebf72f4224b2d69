"""Rates and ends against an oracle: progressive filling from nothing for all demands at every change, the slow way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel, Demand, FairShare
from simcluster_backends.sim.network.flows import Flow, FlowRoute, Network

CLOSE = 1e-9


def plain_rates(demands: Sequence[Demand]) -> list[float]:
    """The max-min rates: raise all levels together, freeze what a full channel or a bound holds, repeat."""
    rates: dict[int, float] = {}
    while len(rates) < len(demands):
        rising = [number for number in range(len(demands)) if number not in rates]
        left: dict[Channel, float] = {}
        load: dict[Channel, float] = {}
        for number, demand in enumerate(demands):
            for channel, use in demand.uses:
                left.setdefault(channel, channel.capacity_Bps)
                if number in rates:
                    left[channel] -= rates[number] * use
                else:
                    load[channel] = load.get(channel, 0.0) + demand.weight * use
        share = {channel: max(0.0, left[channel]) / load[channel] for channel in load}
        level = min([*share.values(), *[demands[number].bound_Bps / demands[number].weight for number in rising]])
        for number in rising:
            demand = demands[number]
            if demand.bound_Bps / demand.weight <= level:
                rates[number] = demand.bound_Bps
            elif any(share[channel] <= level for channel, _ in demand.uses):
                rates[number] = level * demand.weight
    return [rates[number] for number in range(len(demands))]


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


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(capacities, min_size=CHANNELS, max_size=CHANNELS), changes)
def test_rates_are_those_of_filling_from_nothing(capacities_Bps: list[float], history: list[tuple[Any, ...]]) -> None:
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
            assert [demand.rate_Bps for demand in demands] == pytest.approx(plain_rates(demands), rel=CLOSE, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.randoms(use_true_random=False))
def test_rates_between_hosts_of_a_star_are_those_of_filling_from_nothing(hosts: int, random: Any) -> None:
    ups, downs = [[Channel(f"{way}{host}", 1.0) for host in range(hosts)] for way in ("up", "down")]
    fair = FairShare()
    demands: list[Demand] = []
    for _ in range(120):
        if demands and random.random() < 0.5:
            fair.leave(demands.pop(random.randrange(len(demands))))
        else:
            source, target = random.sample(range(hosts), 2)
            demands.append(Demand([(ups[source], 1.0), (downs[target], 1.0)]))
            fair.join(demands[-1])
        if random.random() < 0.7:
            fair.settle()
            assert [demand.rate_Bps for demand in demands] == pytest.approx(plain_rates(demands), rel=CLOSE)


# ends


@dataclass
class Story:
    """What happens to one flow: it starts, may pause and go on, and may be cancelled."""

    route: FlowRoute
    start_s: float
    size_bytes: float
    pause: tuple[float, float] | None
    cancel_s: float


def ends_in_the_network(stories: Sequence[Story], turns: Sequence[tuple[float, Channel, float]]) -> list[float]:
    clock = Clock()
    network = Network(clock)
    ends = [inf] * len(stories)
    flows: dict[int, Flow] = {}

    def end(number: int) -> None:
        ends[number] = clock.now
        del flows[number]

    def start(number: int) -> None:
        story = stories[number]
        flows[number] = Flow(*story.route, left_B=story.size_bytes, on_done=lambda: end(number))
        network.put(flows[number])

    def pause(number: int) -> None:
        if number in flows:
            network.pause(flows[number])

    def resume(number: int) -> None:
        if number in flows and flows[number].paused:
            network.resume(flows[number], stories[number].route)

    def cancel(number: int) -> None:
        if number in flows:
            network.cancel(flows.pop(number))

    def at(when_s: float, act: Callable[..., None], *args: Any) -> None:
        clock.alarm_at(when_s, lambda _: act(*args))

    for number, story in enumerate(stories):
        at(story.start_s, start, number)
        if story.pause is not None:
            at(story.start_s + story.pause[0], pause, number)
            at(story.start_s + sum(story.pause), resume, number)
        at(story.start_s + story.cancel_s, cancel, number)
    for at_s, channel, capacity_Bps in turns:
        at(at_s, network.change, channel, capacity_Bps)
    while clock.advance():
        pass
    return ends


def ends_step_by_step(stories: Sequence[Story], turns: Sequence[tuple[float, Channel, float]]) -> list[float]:
    """The same, with all rates computed from nothing after each event."""
    now_s, ends = 0.0, [inf] * len(stories)
    left_B = [story.size_bytes for story in stories]

    def is_there(number: int, when_s: float) -> bool:
        story, start_s = stories[number], stories[number].start_s
        pauses = story.pause is not None and start_s + story.pause[0] <= when_s < start_s + sum(story.pause)
        return ends[number] == inf and start_s <= when_s < start_s + story.cancel_s and not pauses

    moments = sorted(
        {story.start_s + after_s for story in stories for after_s in (0.0, story.cancel_s)}
        | {
            story.start_s + after_s
            for story in stories
            if story.pause
            for after_s in (story.pause[0], sum(story.pause))
        }
        | {at_s for at_s, _, _ in turns}
    )
    for moment_s in [*moments, 1e9]:
        while now_s < moment_s:
            there = [number for number in range(len(stories)) if is_there(number, now_s)]
            rates = plain_rates([Demand(*stories[number].route) for number in there])
            next_s = min([now_s + left_B[n] / rate for n, rate in zip(there, rates, strict=True) if rate] + [moment_s])
            for number, rate in zip(there, rates, strict=True):
                if rate and now_s + left_B[number] / rate <= next_s * (1 + 1e-15):
                    ends[number] = next_s
                left_B[number] -= rate * (next_s - now_s)
            now_s = next_s
        for at_s, channel, capacity_Bps in turns:
            if at_s == moment_s:
                channel.capacity_Bps = capacity_Bps
    return ends


# Starts on a grid of their own, changes on another: which of two things at one moment comes first is left open.
story = st.tuples(
    st.dictionaries(st.integers(0, 3), st.sampled_from([1.0, 1.0, 0.022, 2.0]), min_size=1, max_size=3),
    st.one_of(st.just(inf), st.sampled_from([2.0, 5.0])),
    st.sampled_from([1.0, 1.0, 0.3, 7.0]),
    st.sampled_from([0.0, 0.0, 1.0, 2.5]),
    st.sampled_from([10.0, 10.0, 20.0, 0.7, 31.0]),
    st.one_of(st.none(), st.none(), st.tuples(st.sampled_from([0.311, 1.077]), st.sampled_from([0.5, 3.0]))),
    st.sampled_from([inf, inf, inf, 1.313]),
)
turn = st.tuples(st.sampled_from([0.713, 1.931, 3.417]), st.integers(0, 3), st.sampled_from([10.0, 4.0, 25.0]))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(story, min_size=1, max_size=14), st.lists(turn, max_size=3, unique_by=lambda turn: turn[0]))
def test_ends_are_those_of_filling_from_nothing_at_each_event(stories: list[Any], turns: list[Any]) -> None:
    def ends(of: Callable[..., list[float]]) -> list[float]:
        channels = [Channel(str(number), 10.0) for number in range(4)]
        told = [
            Story(FlowRoute(tuple((channels[n], use) for n, use in uses.items()), bound_Bps, weight), *rest)
            for uses, bound_Bps, weight, *rest in stories
        ]
        return of(told, [(at_s, channels[number], capacity_Bps) for at_s, number, capacity_Bps in turns])

    assert ends(ends_in_the_network) == pytest.approx(ends(ends_step_by_step), rel=CLOSE)
