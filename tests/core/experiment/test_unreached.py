"""At its end a run names the faults, the stop rule and the traces that it never reached."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from simcluster import run

SHELF: dict[str, Any] = {"generator": "star", "workers": 3}
TRACED: dict[str, Any] = {
    "nodes": {
        "a": {"device": "x86-laptop", "straggler": {"kind": "trace", "factors": {"0 s": 1, "40 s": 3}}},
        "b": {"device": "x86-laptop", "straggler": {"kind": "trace", "factors": {"0 s": 1, "1 us": 3}}},
    },
    "links": [
        {"between": ["a", "b"], "type": "ethernet-1g", "trace": {"steps": {"0 s": "1 Gbps", "1 min": "10 Mbps"}}}
    ],
}


def notes(folder: Path, **keys: Any) -> list[str]:
    given: dict[str, Any] = {"topology": SHELF, "stop": {"steps": 3}, "numerics": "none", **keys}
    fastest = {"name": "all_reduce_dp", "schedule": "naive"}  # another schedule would be suggested
    found = run(algorithm=fastest, workload="quadratic", out=folder, report=False, **given)
    return list(found.summary.get("notes", []))


def test_a_fault_after_the_end_is_named_with_its_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    faults = [
        {"kind": "slow", "node": "n1", "factor": 2, "at": "0 s"},
        {"kind": "crash", "node": "n2", "at": "50 s"},
        {"kind": "cut", "link": "n0-sw", "at": "1 min", "for": "1 s"},
        {"kind": "partition", "groups": [["n0"], ["n1", "n2"]], "at": "2 min", "for": "1 s"},
    ]
    with caplog.at_level(logging.WARNING, "simcluster.run"):
        found = notes(tmp_path, faults=faults)
    assert [line.partition(" never happened: the run ended at 0.00")[0] for line in found] == [
        "fault 2 (crash of n2 at 50 s)",
        "fault 3 (cut of n0-sw at 1 min)",
        "fault 4 (partition of n0 | n1, n2 at 2 min)",
    ]
    assert [record.getMessage() for record in caplog.records] == [f"note: {line}" for line in found]


def test_of_two_equal_faults_of_a_node_the_second_finds_it_gone(tmp_path: Path) -> None:
    faults = [{"kind": "crash", "node": "n2", "at": "100 us"}, {"kind": "crash", "node": "n2", "at": "200 us"}]
    found = notes(tmp_path, faults=faults)
    assert found == ["fault 2 (crash of n2 at 200 us) never happened: n2 had already ended"]


def test_of_many_there_are_ten_lines(tmp_path: Path) -> None:
    faults = [{"kind": "slow", "node": "n1", "factor": 2, "at": f"{50 + number} s"} for number in range(30)]
    found = notes(tmp_path, faults=faults)
    assert (len(found), found[-1]) == (10, "and 21 more were never reached")


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ({"steps": 3}, []),
        ({"steps": 3, "time": "100 s"}, ["stop.time (100 s) was never reached: the run ended at "]),
        ({"steps": 3000, "time": "10 ms"}, ["stop.steps (3000) was never reached: the run ended at 0.01"]),
    ],
)
def test_the_stop_rule_that_did_not_end_the_run_is_named(
    stop: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    found = notes(tmp_path, stop=stop)
    assert [line[: len(start)] for line, start in zip(found, expected, strict=True)] == expected


def test_a_trace_that_has_not_changed_is_named(tmp_path: Path) -> None:
    found = notes(tmp_path, topology=TRACED)
    assert [line.partition(", the run ended at 0.00")[0] for line in found] == [
        "the trace of a never changed: its first change is at 40 s",
        "the trace of a-b never changed: its first change is at 1 min 00 s",
    ]


def test_links_that_no_route_uses_are_named_after_a_run(tmp_path: Path) -> None:
    nodes = {name: {"device": "mac-mini-m4"} for name in ("a", "b")}
    links = [{"between": ["a", "b"], "type": kind} for kind in ("ethernet-1g", "ethernet-10g")]
    found = notes(tmp_path, topology={"name": "macs", "nodes": nodes, "links": links})
    assert found == ["no message takes a-b#1: all routes use other links"]
