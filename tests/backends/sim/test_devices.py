"""How long work takes: measured, or roofline and overhead; and one piece at a time."""

from __future__ import annotations

import pytest
from simcluster_backends.sim.devices import DeviceModel

from simcluster.topology import Device, Profile
from simcluster.topology.model.duration import undisturbed_s
from simcluster.topology.model.stragglers import Constant, Lognormal
from simcluster.transport import FREE, Cost


@pytest.mark.parametrize(
    ("cost", "duration_s"),
    [
        (Cost(2e9, 1e8), 2.0),  # 2 s of arithmetic hide 1 s of memory
        (Cost(1e9, 3e8), 3.0),  # the other way round
        (FREE, 0.0),
    ],
)
def test_work_takes_the_slower_of_arithmetic_and_memory(cost: Cost, duration_s: float) -> None:
    assert undisturbed_s(Device("d", 1e9, 1e8), cost) == duration_s


def test_overhead_comes_on_top_of_the_roofline_once_a_piece_and_once_an_operator() -> None:
    device = Device("d", 1e9, work_overhead_s=0.25, operator_overhead_s=0.125)
    # 1 s of arithmetic, 0.25 s for the piece, 4 x 0.125 s for its operators
    assert undisturbed_s(device, Cost(1e9, operators=4)) == 1.75
    assert undisturbed_s(device, Cost(1e9)) == 1.25
    assert undisturbed_s(device, FREE) == 0.0


def test_what_was_measured_stands_for_roofline_and_overhead_of_its_kind_alone() -> None:
    profile = Profile((("net/gradient", ((1e9, 0.5), (3e9, 1.0))),))
    device = Device("d", 1e9, work_overhead_s=0.25, operator_overhead_s=0.125, profile=profile)
    assert undisturbed_s(device, Cost(2e9, operators=4, kind="net/gradient")) == 0.75
    assert undisturbed_s(device, Cost(2e9, operators=4, kind="net/apply")) == 2.75
    assert undisturbed_s(device, Cost(2e9, operators=4)) == 2.75


def test_a_straggler_slows_down_overhead_and_measured_work_as_well() -> None:
    profile = Profile((("net/apply", ((0.0, 0.5),)),))
    model = DeviceModel(Device("d", 1e9, work_overhead_s=1.0, profile=profile, straggler=Constant(3.0)), 0, "a")
    assert model.start(Cost(1e9), 0.0) == 6.0
    assert model.start(Cost(1e9, kind="net/apply"), 6.0) == 1.5


def test_every_piece_of_work_is_drawn_anew_from_its_own_nodes_stream() -> None:
    device = Device("d", 1.0, straggler=Lognormal(0.5))

    def durations(seed: int, name: str) -> list[float]:
        model = DeviceModel(device, seed, name)
        return [model.start(Cost(1.0), 0.0) for _ in range(5)]

    assert len(set(durations(0, "a"))) == 5
    assert durations(0, "a") == durations(0, "a")
    assert set(durations(0, "a")).isdisjoint(durations(0, "b"))
    assert set(durations(0, "a")).isdisjoint(durations(1, "a"))


def test_costs_of_one_kind_add_up_to_that_kind_and_free_adds_nothing() -> None:
    gradient, apply = Cost(2.0, 3.0, 4, "net/gradient"), Cost(1.0, 1.0, 1, "net/apply")
    assert gradient + gradient == Cost(4.0, 6.0, 8, "net/gradient")
    assert gradient + FREE == FREE + gradient == gradient
    assert gradient + apply == Cost(3.0, 4.0, 5, "")
    assert FREE + FREE == FREE
