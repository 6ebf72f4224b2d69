"""What is tried: every part of a cluster and every number of an algorithm; what is for sale; what a goal may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from simcluster.documents.shipped import parts_path, shipped_names, shipped_path
from simcluster.errors import UsageError
from simcluster.experiment.read.experiment import Experiment
from simcluster.experiment.read.read import read_experiment
from simcluster.lab.what_if.answer import bottleneck, sentences
from simcluster.lab.what_if.critical_path import CriticalPath, critical_path
from simcluster.lab.what_if.effects import by_gain, by_price, effect, ranked
from simcluster.lab.what_if.goal import read_goal
from simcluster.lab.what_if.perturb import Change, Parts, changes, purchases, read_parts
from simcluster.topology.model.stragglers import Constant

SMALL: dict[str, Any] = {
    "topology": "smolcluster",
    "algorithm": "edp",
    "workload": "quadratic",
    "stop": {"steps": 4},
    "numerics": "none",
}


def plan(overrides: dict[str, Any] | None = None) -> Experiment:
    return read_experiment(SMALL, overrides)


def of(kind: str, label: str, *after_s: float | None, price_usd: float | None = None) -> Any:
    """Return the effect of a change on runs of 2 s and, if there are two, 4 s."""
    change = Change(kind, label.partition(":")[0], label, {}, price_usd)  # type: ignore[arg-type]
    return effect(change, dict(enumerate((2.0, 4.0)[: len(after_s)])), dict(enumerate(after_s)), None, None)


def labels(found: list[Change]) -> set[str]:
    return {change.label for change in found}


def test_every_link_device_and_number_is_tried_and_what_it_says_is_what_changes() -> None:
    as_it_is = plan({"algorithm.pull_interval": 4})
    tried = changes(as_it_is, staleness=6.2)
    for link in as_it_is.topology.links:
        assert {f"{link.name}: twice the bandwidth", f"{link.name}: half the latency"} <= labels(tried)
    assert {f"{name}: a device twice as fast" for name in as_it_is.topology.workers} <= labels(tried)
    assert {"pull_interval: 2 in place of 4", "pull_interval: 8 in place of 4"} <= labels(tried)
    assert "max_staleness: 6, the mean, in place of no limit" in labels(tried)
    assert len(tried) == 4 * 2 + 5 + 2 + 1
    by_label = {change.label: plan({"algorithm.pull_interval": 4, **change.overrides}) for change in tried}
    was = as_it_is.topology
    wider = by_label["pi5-mini1: twice the bandwidth"].topology
    assert [new.bandwidth_Bps / old.bandwidth_Bps for new, old in zip(wider.links, was.links, strict=True)] == [
        1,
        1,
        2,
        1,
    ]
    faster = by_label["pi4: a device twice as fast"].topology.nodes["pi4"].device
    pi4 = was.nodes["pi4"].device
    assert faster is not None
    assert pi4 is not None
    assert faster.flops_per_s == 2 * pi4.flops_per_s
    assert faster.memory_bandwidth_Bps == 2 * pi4.memory_bandwidth_Bps
    assert faster.operator_overhead_s == pi4.operator_overhead_s / 2
    assert faster.work_overhead_s == pi4.work_overhead_s / 2
    assert by_label["pull_interval: 2 in place of 4"].algorithm_settings["pull_interval"] == 2


def test_what_slows_a_part_down_is_tried_without_it() -> None:
    as_it_is = plan(
        {
            "topology.nodes.pi4.straggler": {"kind": "pareto", "shape": 2},
            "topology.nodes.mini1.host_bandwidth": "1 Gbps",
            "topology.nodes.mini2.recv_overhead": "20 us",
            "topology.links.pi5-mini1.loss": 0.01,
        }
    )
    tried = {change.label: plan(dict(change.overrides)).topology for change in changes(as_it_is)}
    steady = tried["pi4: as fast as its numbers say"].nodes["pi4"].device
    assert steady is not None
    assert steady.straggler == Constant(1.0)
    assert tried["mini1: twice the bandwidth of its own"].nodes["mini1"].host_bandwidth_Bps == 250e6
    assert tried["mini2: half the overhead of messages"].nodes["mini2"].recv_overhead_s == pytest.approx(10e-6)
    assert tried["pi5-mini1: half the losses"].links[2].loss == 0.005


def test_a_measured_profile_is_halved_too() -> None:
    measured = {"topology.nodes.pi4.profile": {"quadratic/gradient": {"1 MFLOP": "4 ms", "2 MFLOP": "6 ms"}}}
    twice = next(change for change in changes(plan(measured)) if change.label == "pi4: a device twice as fast")
    device = plan(dict(twice.overrides)).topology.nodes["pi4"].device
    assert device is not None
    assert device.profile is not None
    assert device.profile.seconds("quadratic/gradient", 1e6) == pytest.approx(2e-3)
    assert device.profile.seconds("quadratic/gradient", 2e6) == pytest.approx(3e-3)


def test_of_many_parts_those_that_are_alike_change_together() -> None:
    many = {"generator": "star", "workers": 64, "bandwidth": "1 Gbps", "latency": "50 us", "device": "x86-laptop"}
    tried = changes(read_experiment({**SMALL, "topology": many}))
    # the server's link and device, and 63 others: bandwidth, latency and device of each kind; pull_interval x2
    assert len(tried) == 2 * 3 + 1
    assert any("and 62 like it" in change.label and len(change.overrides) >= 63 for change in tried)


def test_only_what_is_faster_and_fits_is_for_sale() -> None:
    as_it_is = plan().topology
    found = purchases(as_it_is, read_parts(), {"pi5-mini1", "mini1-mini2", "pi4"})
    assert "ethernet-2.5g for pi5-mini1" in labels(found)
    assert not [c for c in found if c.part == "pi5-mini1" and "thunderbolt" in c.label]  # a Pi has no such port
    assert not [c for c in found if c.part == "mini1-mini2"]  # nothing that fits a Mac mini M4 is faster
    assert {"raspberry-pi-5 for pi4", "mac-mini-m4 for pi4"} <= labels(found)
    assert "raspberry-pi-4 for pi4" not in labels(found)
    slow = plan({"topology.nodes.pi4.straggler": {"kind": "constant", "factor": 10}}).topology
    assert "raspberry-pi-4 for pi4" in labels(purchases(slow, read_parts(), {"pi4"}))
    assert purchases(as_it_is, read_parts(), set()) == []
    assert purchases(as_it_is, Parts(), {"pi4"}) == []


@pytest.mark.parametrize(
    ("own", "sold"),
    [
        ({}, set()),  # 941 Mbps at 150 us: the type has 100 us, and the same cable would not change that
        ({"bandwidth": "900 Mbps", "latency": "300 us"}, set()),  # as measured on this cable
        ({"bandwidth": "100 Mbps"}, {"ethernet-1g"}),  # below half of its type: broken
        ({"latency": "5 ms"}, {"ethernet-1g"}),  # 50 times its type's
        ({"loss": 0.01}, {"ethernet-1g"}),
        ({"type": "ethernet-2.5g", "bandwidth": "1.3 Gbps"}, set()),  # a lesser cable would not be more
        ({"type": None, "bandwidth": "600 Mbps"}, set()),  # of no type, more than half of 941 Mbps
        ({"type": None, "bandwidth": "400 Mbps"}, {"ethernet-1g"}),
    ],
)
def test_a_cable_that_is_there_is_not_for_sale(own: dict[str, Any], sold: set[str]) -> None:
    link = {"between": ["pi5", "mini1"], "type": "ethernet-1g", "latency": "150 us"} | own
    topology = plan({"topology.links.pi5-mini1": {key: value for key, value in link.items() if value}}).topology
    found = {c.instead for c in purchases(topology, read_parts(), {"pi5-mini1"})}
    assert found & {"ethernet-1g"} == sold
    assert "ethernet-2.5g" in found or own.get("type") == "ethernet-2.5g"


def test_a_machine_that_is_there_is_not_for_sale() -> None:
    # Measured at half of its preset's rate, a Pi 5 is a Pi 5 all the same, and a Pi 4 is less.
    slow = plan({"topology.nodes.pi5.flops": "15 GFLOP/s"}).topology
    found = {c.instead for c in purchases(slow, read_parts(), {"pi5"})}
    assert not {"raspberry-pi-5", "raspberry-pi-4"} & found
    assert "mac-mini-m4" in found


def test_the_answer_says_over_how_many_steps_it_was_measured_and_which_settings_need_more() -> None:
    topology, path = plan().topology, CriticalPath((), 2.0)
    fewer = effect(Change("setting", "n", "n: 2 in place of 1", {"algorithm.n": 2}), {0: 2.0}, {0: 1.0}, None, None)
    for steps, judged in ((15, False), (16, True)):  # 8 periods of 2 steps
        told = sentences(read_goal("step-time"), {0: 2.0}, None, [fewer], [], path, topology, exact=True, steps=steps)
        (over,) = [sentence for sentence in told if sentence.startswith("Measured over")]
        assert over.startswith(f"Measured over {steps} steps per worker (stop.steps)")
        assert ("too few to judge n: 16 would do" in over) == (not judged)
        assert any(sentence.startswith("Of the settings, n: 2") for sentence in told) == judged


def test_what_is_bought_takes_the_place_of_what_is_there_with_all_its_own_numbers() -> None:
    odd = {
        "topology.links.pi5-mini1.bandwidth": "10 Mbps",
        "topology.links.pi5-mini1.latency": "9 ms",
        "topology.nodes.pi4.straggler": {"kind": "constant", "factor": 10},
        "topology.nodes.pi4.price_per_hour": "0.1 USD/h",
    }
    bought = {c.label: c for c in purchases(plan(odd).topology, read_parts(), {"pi5-mini1", "pi4"})}
    cable = bought["ethernet-1g for pi5-mini1"]
    assert cable.price_usd == 30
    new = plan({**odd, **cable.overrides}).topology.links[2]
    assert (new.type, new.bandwidth_Bps, new.latency_s) == ("ethernet-1g", 941e6 / 8, 100e-6)
    node = plan({**odd, **bought["raspberry-pi-5 for pi4"].overrides}).topology.nodes["pi4"]
    assert node.device is not None
    assert (node.device.name, node.device.straggler, node.device.price_USD_per_h) == ("raspberry-pi-5", None, 0.1)
    assert node.address == "192.168.51.4"


def test_everything_wrong_in_a_list_of_parts_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    path.write_text(
        "links:\n  ethernet-2g: {price: 5 USD}\n  ethernet-1g: {price: 5 EUR, colour: red}\n  wan: 7\n"
        "devices:\n  raspberry-pi-5: {price: 0 USD}\ncables: {}\n"
    )
    with pytest.raises(UsageError) as error:
        read_parts(path)
    lines = [str(problem) for problem in error.value.problems]
    assert len(lines) == 6
    for line, word in (("2", "ethernet-2.5g"), ("3", "60 USD"), ("3", "colour"), ("4", "price"), ("6", "60 USD")):
        assert any(f"parts.yaml:{line}:" in text and word in text for text in lines), (line, word, lines)
    with pytest.raises(UsageError, match="a file with prices"):
        read_parts(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text", ["speed", "step-time=3", "time-to-accuracy", "time-to-accuracy=2", "time-to-loss=-1", "time-to-loss=nan"]
)
def test_a_goal_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="goal"):
        read_goal(text)


def test_a_goal_is_read_off_a_table() -> None:
    table = pd.DataFrame(
        {
            "status": ["done", "done", "failed"],
            "elapsed_s": [2.0, 4.0, 1.0],
            "time_to_target_s": [1.5, None, None],
            "joules": [10.0, 20.0, 1.0],
        }
    )
    assert read_goal("run-time").measured(table, 8) == [2.0, 4.0, None]
    assert read_goal("step-time").measured(table, 8) == [0.25, 0.5, None]
    assert read_goal("energy").measured(table, 8) == [10.0, 20.0, None]
    assert read_goal("time-to-loss=0.5").measured(table, 8) == [1.5, None, None]
    assert read_goal("time-to-loss=0.5").targets == {"loss": 0.5}
    assert read_goal("step-time").targets is None


def test_an_effect_is_the_mean_over_seeds_of_what_each_seed_changed() -> None:
    half = of("bandwidth", "half", 1.0, 2.2)  # -50 % and -45 %
    assert (half.value, half.relative, half.lowest, half.highest) == pytest.approx((1.6, -0.475, -0.5, -0.45))
    assert half.is_certain
    unsure = of("bandwidth", "unsure", 1.0, 4.4)  # -50 % and +10 %
    assert unsure.relative == pytest.approx(-0.2)
    assert not unsure.is_certain
    lost = of("bandwidth", "lost", 1.0, None)
    assert (lost.value, lost.relative, lost.gain) == (None, None, -1.0)
    worse = of("bandwidth", "worse", 4.0, 8.0)
    assert [e.change.label for e in ranked([lost, half, worse, unsure])] == ["worse", "half", "unsure", "lost"]
    assert [e.change.label for e in by_gain([lost, unsure, worse, half])] == ["half", "unsure"]
    cheap, dear = of("bandwidth", "cheap", 1.8, 3.6, price_usd=10), of("bandwidth", "dear", 1.0, 2.0, price_usd=100)
    # 10 % for 10 USD is 1 % a dollar, 50 % for 100 USD half a percent
    assert [e.per_usd for e in by_price([dear, cheap])] == pytest.approx([0.01, 0.005])


def test_what_seeds_do_not_agree_on_is_neither_the_bottleneck_nor_recommended() -> None:
    lucky, sure = of("bandwidth", "lucky: other", 0.2, 4.4), of("device", "sure: other", 1.8, 3.6)
    goal = read_goal("time-to-loss=1")
    assert bottleneck([lucky, sure], goal) is sure
    assert bottleneck([lucky], goal) is lucky  # better than nothing, and said to be unsure
    path, topology = critical_path([], plan().topology), plan().topology
    told = sentences(
        goal, {0: 2.0, 1: 4.0}, None, [lucky], [of("purchase", "toy: other", 0.1, 5.0, price_usd=1)], path, topology
    )
    assert "the seeds disagree" in told[1]
    assert told[-1].startswith("No purchase surely gains a percent")
    told = sentences(goal, {0: 2.0, 1: 4.0}, None, [lucky, sure], [], path, topology)
    assert "lucky" not in " ".join(told)


def test_changes_with_the_same_numbers_are_named_together_and_of_parts_that_gain_as_much_the_cheapest() -> None:
    wider = [of("bandwidth", f"n{n}: twice the bandwidth", 1.0 + n / 1e4) for n in (1, 2)]  # 1.0001 s is 1.00 s
    faster = [of("device", f"n{n}: faster", 1.8) for n in (1, 2)]  # 10 % less
    slightly = of("latency", "n1: half the latency", 1.96)  # 2 % less
    sold = [
        of("purchase", "1g for n1", 1.2, price_usd=30),  # 40 % for 30 USD
        of("purchase", "1g for n2", 1.2, price_usd=30),
        of("purchase", "10g for n3", 0.8, price_usd=250),  # 60 % for 250 USD
        of("purchase", "2.5g for n3", 0.81, price_usd=60),  # 59.5 %: enough, and for less; 0.99 % for each dollar
    ]
    topology, path = plan().topology, CriticalPath((), 2.0)
    told = sentences(
        read_goal("run-time"), {0: 2.0}, None, [*wider, *faster, slightly], sold, path, topology, exact=True
    )
    assert told[1].startswith(
        "The bottleneck is the bandwidth of n1: with twice the bandwidth the time of the run is 1.00 s"
    )
    assert told[2] == "Any of these changes alone gains the same: n2: twice the bandwidth."
    assert told[3] == "Next, each alone: n1: faster and n2: faster (each 10 % less); n1: half the latency (2 % less)."
    assert told[-1].startswith("The best purchase is 1g for n1, 30 USD: ")
    assert "Any of these is as good: 1g for n2." in told[-1]
    assert told[-1].endswith("The most is gained by 2.5g for n3, 60 USD: 60 % less.")


def test_a_cable_with_more_latency_is_tried_and_thunderbolt_only_between_machines() -> None:
    # With 50 us, less than the 100 us of ethernet-1g, only ethernet-10g was for sale.
    star = {"generator": "star", "workers": 3, "bandwidth": "100 Mbps", "latency": "50 us", "device": "mac-mini-m4"}
    topology = read_experiment({**SMALL, "topology": star}).topology
    (link, *_) = topology.links
    found = {c.instead for c in purchases(topology, read_parts(), {link.name})}
    assert found == {"ethernet-1g", "ethernet-2.5g", "ethernet-10g"}
    pair = {
        "nodes": {"a": {"device": "mac-mini-m4"}, "b": {"device": "mac-mini-m4"}},
        "links": [{"between": ["a", "b"], "type": "ethernet-1g"}],
    }
    topology = read_experiment({**SMALL, "topology": pair}).topology
    found = {c.instead for c in purchases(topology, read_parts(), {"a-b"})}
    assert found == {"ethernet-2.5g", "ethernet-10g", "thunderbolt-4"}


def test_in_a_timing_no_setting_is_the_bottleneck_and_its_sentence_says_why() -> None:
    fewer = of("setting", "interval: 2 in place of 1", 1.0)
    path, topology = critical_path([], plan().topology), plan().topology
    told = sentences(read_goal("step-time"), {0: 2.0}, None, [fewer], [], path, topology)
    assert told[1].startswith("No single change of a link or a device gains a percent, of 0:")
    assert (
        "interval: 2 in place of 1 gains most: the time of a step is 50 % less; what that does to learning" in told[2]
    )
    learnt = sentences(read_goal("time-to-loss=1"), {0: 2.0}, 8.0, [fewer], [], path, topology)
    assert learnt[1].startswith("The bottleneck is the setting interval: with 2 in place of 1 ")


def test_the_list_of_parts_lies_beside_the_topologies_and_is_none() -> None:
    assert parts_path().parent.name == "topologies"
    assert "parts" not in shipped_names("topologies")
    assert shipped_path("topologies", "parts") is None
