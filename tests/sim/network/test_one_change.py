"""A full channel with one flow more or less, against the general way to settle rates: equal to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster_backends.sim.loop.clock import Clock
from simcluster_backends.sim.network.fairshare import Channel, FairShare
from simcluster_backends.sim.network.flows import Flow, Network, Route

LEAVES, MOST = 5, 40


@dataclass(frozen=True)
class Push:
    """A flow from *leaf* through the shared channel, put at *at_s*; once done, one from *then* follows, if any."""

    at_s: float
    leaf: int
    size_B: float
    use: float
    then: int | None


@dataclass(frozen=True)
class Change:
    """At *at_s* the capacity of *leaf*, or of the shared channel, is another, or the flow *number* is cancelled."""

    at_s: float
    leaf: int
    capacity_Bps: float
    number: int
    kind: str


Times = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 0.1, 10.0 / 3.0])
Leaves = st.integers(0, LEAVES - 1)
Sizes = st.sampled_from([1.0, 1.0, 1.0, 0.1, 3.7])
Pushes = st.builds(Push, Times, Leaves, Sizes, st.sampled_from([1.0, 1.0, 1.0, 0.3]), st.none() | Leaves)
Changes = st.builds(
    Change, Times, Leaves, st.sampled_from([0.0, 0.25, 1.0, 7.0]), st.integers(0, 9),
    st.sampled_from(["leaf", "shared", "cancel", "pause", "look"]),
)  # fmt: skip


class Star:
    """A network of leaves around one channel, and what happened in it: (time, what, flow)."""

    def __init__(self, capacities: list[float], shared_Bps: float, weight: float) -> None:
        self.clock = Clock()
        self.network = Network(self.clock)
        self.leaves = [Channel(f"leaf {number}", capacity) for number, capacity in enumerate(capacities)]
        self.shared, self.weight = Channel("shared", shared_Bps), weight
        self.events: list[tuple[float, str, int]] = []
        self.flows: dict[int, Flow] = {}
        self._number = 0

    def put(self, push: Push) -> None:
        number, self._number = self._number, self._number + 1
        route = Route(((self.leaves[push.leaf], 1.0), (self.shared, push.use)), weight=self.weight)

        def done() -> None:
            self.events.append((self.clock.now, "done", number))
            del self.flows[number]
            if push.then is not None and number < MOST:
                self.clock.alarm_at(self.clock.now, lambda _: self.events.append((self.clock.now, "alarm", number)))
                self.put(Push(0.0, push.then, push.size_B, push.use, None))

        flow = self.flows[number] = Flow(*route, left_B=push.size_B, on_done=done)
        self.network.put(flow)

    def change(self, change: Change) -> None:
        self.events.append((self.clock.now, change.kind, 0))
        if change.kind in ("leaf", "shared"):
            channel = self.leaves[change.leaf] if change.kind == "leaf" else self.shared
            self.network.change(channel, change.capacity_Bps)
        elif change.kind == "cancel" and change.number in self.flows:
            self.network.cancel(self.flows.pop(change.number))
        elif change.kind == "pause" and change.number in self.flows and not self.flows[change.number].paused:
            flow = self.flows[change.number]
            route = Route(flow.uses, flow.bound_Bps, flow.weight)
            self.network.pause(flow)
            self.clock.alarm_at(self.clock.now + 0.5, lambda _: self._resume(flow, route))

    def _resume(self, flow: Flow, route: Route) -> None:
        if flow in self.flows.values():
            self.network.resume(flow, route)


def events(scenario: tuple[Any, ...]) -> list[tuple[float, str, int]]:
    capacities, shared_Bps, weight, pushes, changes = scenario
    star = Star(capacities, shared_Bps, weight)
    for push in pushes:
        star.clock.alarm_at(push.at_s, lambda _, push=push: star.put(push))
    for change in changes:
        star.clock.alarm_at(change.at_s, lambda _, change=change: star.change(change))
    while star.clock.advance():
        pass
    return star.events


Capacities = st.lists(st.sampled_from([1.0, 1.0, 1.0, 0.25, 3.0]), min_size=LEAVES, max_size=LEAVES)
Scenarios = st.tuples(
    Capacities | st.just([1.0] * LEAVES), st.sampled_from([1.0, 0.3, 0.7, 1e9 / 8, 5.0]), st.sampled_from([1.0, 0.3]),
    st.lists(Pushes, max_size=12), st.lists(Changes, max_size=4),
)  # fmt: skip


@given(Scenarios)
def test_one_change_settles_as_any(scenario: tuple[Any, ...]) -> None:
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
