"""Joules and price of a run: arithmetic of watts, hours and seconds, and nothing where a number is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import simcluster
from simcluster.lab.reports.report import render
from simcluster.results import compare, load_run
from simcluster.runs.record import NodeRecord, RunRecord, Span
from simcluster.runs.summary import Bill, bill, bills, summarize, total
from simcluster.runs.write import write_run
from simcluster.topology import Device, load
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document

WATTS = Device("d", 1e9, power_idle_W=2.0, power_busy_W=10.0, price_USD_per_h=1.8)


def test_work_draws_the_busy_power_and_all_other_time_the_idle_one() -> None:
    # 3 s x 10 W + 7 s x 2 W; 1.8 USD an hour is 0.0005 USD a second
    assert bill(WATTS, 3.0, 10.0) == Bill(44.0, pytest.approx(0.005, rel=1e-12))
    assert bill(WATTS, 0.0, 10.0).joules == 20.0
    # A run that was stopped in the middle of a piece of work has worked for no longer than it took.
    assert bill(WATTS, 10.5, 10.0).joules == 105.0


def test_a_device_without_numbers_has_no_bill_and_a_free_one_costs_nothing() -> None:
    assert bill(Device("d", 1e9), 3.0, 10.0) == Bill(None, None)
    assert bill(Device("d", 1e9, price_USD_per_h=0.0), 3.0, 10.0) == Bill(None, 0.0)


def test_a_total_is_of_all_devices_or_there_is_none() -> None:
    assert total([Bill(1.0, 2.0), Bill(3.0, 4.0)]) == Bill(4.0, 6.0)
    assert total([Bill(1.0, None), Bill(3.0, 4.0)]) == Bill(4.0, None)
    assert total([]) == Bill(None, None)


def test_every_node_is_paid_for_until_the_run_ends() -> None:
    nodes = {name: {"flops": "1 GFLOP/s", "price_per_hour": "3600 USD/h"} for name in ("a", "b")}
    topology = load({"nodes": nodes, "links": [{"between": ["a", "b"], "type": "wan"}]})
    early = NodeRecord(0, "a", spans=[Span("compute", 0.0, 1.0, -1, "", 0)], finished_s=1.0)
    record = RunRecord([early, NodeRecord(1, "b", finished_s=4.0)], 4.0, 0.1)
    assert bills(topology, record) == {"a": Bill(None, 4.0), "b": Bill(None, 4.0)}


def test_processes_of_this_machine_have_no_bill_of_the_devices_that_they_stand_for() -> None:
    record, topology = made_up_run(), load(topology_document())
    assert total(bills(topology, record).values()).joules is not None
    record.extra["one_machine"] = True
    assert total(bills(topology, record).values()) == Bill(None, None)
    here = topology_document() | {"machines": {"box": {"cores": 4}}}
    overrides = {f"nodes.{name}.machine": "box" for name in topology.workers}
    assert total(bills(load(here, overrides=overrides), record).values()).joules is not None


def test_the_summary_has_joules_and_price_of_every_node_and_of_all() -> None:
    record = made_up_run()
    topology = load(topology_document())
    summary = summarize(made_up_config(), topology, record, "1")
    # mini2 computes 0.01 s in each of 50 steps of 0.038 s: 0.5 s x 39.6 W + 1.4 s x 4 W
    assert summary["nodes"]["mini2"]["joules"] == pytest.approx(0.5 * 39.6 + 1.4 * 4, rel=1e-9)
    assert summary["joules"] == pytest.approx(sum(node["joules"] for node in summary["nodes"].values()), rel=1e-12)
    assert summary["price_usd"] is summary["nodes"]["mini2"]["price_usd"] is None
    priced = {f"nodes.{name}.price_per_hour": "0.36 USD/h" for name in topology.workers}
    summary = summarize(made_up_config(), load(topology, overrides=priced), record, "1")
    # 5 devices x 0.0001 USD a second x 1.9 s
    assert summary["price_usd"] == pytest.approx(0.00095, rel=1e-9)


def test_report_and_comparison_tell_the_bill_and_older_runs_without_one_still_compare(tmp_path: Path) -> None:
    topology = load(topology_document())
    dearer = load(
        topology,
        overrides={f"nodes.{name}.price_per_hour": "36 USD/h" for name in topology.workers}
        | {f"nodes.{name}.power_busy": "100 W" for name in topology.workers},
    )
    a = load_run(write_run(tmp_path / "a", made_up_config(), topology, made_up_run(), "1"))
    b = load_run(write_run(tmp_path / "b", made_up_config(), dearer, made_up_run(), "1"))
    page = render(b, dearer)
    assert "<dt>energy</dt><dd>" in page
    # 5 x 0.01 USD/s x 1.9 s
    assert "<dt>price</dt><dd>0.0950 USD" in page
    assert "<dt>price</dt>" not in render(a, topology)
    text = compare(a, b).describe()
    (energy,) = [line.split() for line in text.splitlines() if line.startswith("energy")]
    assert energy[-1] == f"x{b.summary['joules'] / a.summary['joules']:.3g}"
    (price,) = [line.split() for line in text.splitlines() if line.startswith("price")]
    assert price[1:] == ["-", "0.0950", "USD"]
    pair = compare(a, b).to_dict()["pairs"][0]
    assert pair["price_usd"] == {"a": None, "b": b.summary["price_usd"]}
    assert pair["nodes"]["pi4"]["joules"]["b"] == b.summary["nodes"]["pi4"]["joules"]
    older = load_run(tmp_path / "a")
    for key in ("joules", "price_usd"):
        older.summary.pop(key)
    assert "energy" in compare(older, b).describe()


def test_a_real_run_is_billed_for_the_time_that_was_measured(tmp_path: Path) -> None:
    node = {"flops": "1 GFLOP/s", "power_idle": "2 W", "power_busy": "10 W", "price_per_hour": "3.6 USD/h"}
    node |= {"machine": "here"}
    links = [{"between": ["a", "b"], "type": "ethernet-1g"}]
    run = simcluster.run(
        topology={"nodes": {"a": node, "b": node}, "links": links, "machines": {"here": {"cores": 2}}},
        algorithm="all_reduce_dp",
        workload="quadratic",
        stop={"steps": 5},
        backend="sockets",
        out=tmp_path / "run",
        report=False,
    )
    summary = run.summary
    for numbers in summary["nodes"].values():
        rest_s = summary["elapsed_s"] - numbers["compute_s"]
        assert numbers["joules"] == pytest.approx(10 * numbers["compute_s"] + 2 * rest_s, rel=1e-9)
    assert summary["price_usd"] == pytest.approx(2 * 0.001 * summary["elapsed_s"], rel=1e-9)
