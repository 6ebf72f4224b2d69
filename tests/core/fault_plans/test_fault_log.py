"""What faults did to a run, in its summary, its trace, its timeline and its report."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

import simcluster
from simcluster.fault_plans.kinds import Crash, Flap, Hang
from simcluster.fault_plans.log import FaultLog
from simcluster.lab.reports.report_tables import cells
from simcluster.results import Run
from simcluster.runs.trace import bands, trace_events
from tests.core.runs.test_trace import broken_rules

CRASH = Crash(spells=((1.0, inf),), rank=0, spec={"kind": "crash", "node": "a", "at": "1 s"})
FLAP = Flap(spells=((1.0, 2.0), (3.0, 4.0)), link="a-b", spec={"kind": "flap", "link": "a-b", "period": "2 s"})


def test_the_log_has_what_happened_in_its_order_with_its_times() -> None:
    clock = [0.0]
    log = FaultLog(lambda: clock[0], sees_bytes=True)
    for time_s, what, fault in [
        (1.0, log.begins, FLAP),
        (1.5, log.begins, CRASH),
        (2.0, log.ends, FLAP),
        (3.0, log.begins, FLAP),
    ]:
        clock[0] = time_s
        what(fault)
    log.drops(FLAP, 100)
    log.drops(FLAP, 20)
    log.ends(Hang(spells=((0.0, 1.0),), rank=1))
    assert log.rows() == [
        {
            "kind": "flap",
            "target": "a-b",
            "plan": dict(FLAP.spec),
            "spells_s": [[1.0, 2.0], [3.0, None]],
            "dropped_bytes": 120,
        },
        {"kind": "crash", "target": "a", "plan": dict(CRASH.spec), "spells_s": [[1.5, None]], "dropped_bytes": 0},
    ]
    assert log.dropped_bytes == 120


def test_a_log_that_sees_no_bytes_says_so() -> None:
    log = FaultLog(lambda: 0.0, sees_bytes=False)
    log.begins(CRASH)
    assert log.rows()[0]["dropped_bytes"] is None
    assert cells(log.rows()[0])[-1] == "-"


ROWS: list[dict[str, Any]] = [
    {"kind": "cut", "target": "a-b", "plan": {"for": "1 s"}, "spells_s": [[1.0, 2.0], [3.0, None]], "dropped_bytes": 0},
    {"kind": "crash", "target": "<a>", "plan": {"node": "<a>"}, "spells_s": [[1.5, None]], "dropped_bytes": 2048},
]


def test_a_spell_without_an_end_lasts_to_the_end_of_the_run() -> None:
    assert [(band.label, band.start_s, band.end_s, band.is_moment) for band in bands(ROWS, 10.0)] == [
        ("cut: a-b", 1.0, 2.0, False),
        ("cut: a-b", 3.0, 10.0, False),
        ("crash: <a>", 1.5, 10.0, True),
    ]


def test_a_trace_has_a_process_for_faults_behind_those_of_the_nodes() -> None:
    found = list(trace_events(ROWS, 10.0, 5))
    assert broken_rules({"traceEvents": found}) == []
    assert {event["pid"] for event in found} == {5}
    shown = [(event["ph"], event["name"], event["ts"], event.get("dur")) for event in found[1:]]
    assert shown == [("X", "cut: a-b", 1e6, 1e6), ("X", "cut: a-b", 3e6, 7e6), ("i", "crash: <a>", 1.5e6, None)]
    assert list(trace_events([], 10.0, 5)) == []


def test_cells_say_what_and_when_in_words() -> None:
    assert cells(ROWS[0]) == ["cut", "a-b", "-", "1.00 s to 2.00 s, 3.00 s to the end", "-"]
    assert cells(ROWS[1]) == ["crash", "<a>", "-", "at 1.50 s", "2.05 kB"]
    many = {**ROWS[0], "plan": {"kind": "flap", "period": "1 ms"}, "spells_s": [[float(i), i + 0.5] for i in range(9)]}
    assert cells(many)[2:4] == ["period 1 ms", "0 s to 500 ms, 1.00 s to 1.50 s, 2.00 s to 2.50 s and 6 more times"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simcluster.run(
        topology="thunderbolt-mesh-4",
        algorithm="edp",
        workload="quadratic",
        stop={"steps": 40},
        faults=[
            {"kind": "slow", "node": "mini2", "factor": 3, "at": "1 ms"},
            {"kind": "flap", "link": "mini1-mini2", "at": "2 ms", "for": "4 ms", "period": "1 ms"},
            {"kind": "crash", "node": "mini3", "at": "3 ms"},
            {"kind": "crash", "node": "mini4", "at": "1 h"},
        ],
        out=tmp_path_factory.mktemp("run") / "run",
    )


@pytest.mark.slow
def test_the_summary_has_what_was_injected_and_not_what_came_too_late(run: Run) -> None:
    faults = run.summary["faults"]
    assert [(row["kind"], row["target"]) for row in faults] == [
        ("slow", "mini2"),
        ("flap", "mini1-mini2"),
        ("crash", "mini3"),
    ]
    assert faults[0]["spells_s"] == [[0.001, None]]
    assert [spell[0] for spell in faults[1]["spells_s"]] == pytest.approx([0.002, 0.003, 0.004, 0.005])
    assert faults[2]["plan"] == {"kind": "crash", "node": "mini3", "at": "3 ms"}
    assert list(run.summary["lost"]) == ["mini3"]


def test_the_trace_of_a_run_shows_them_and_reads_back_without(run: Run) -> None:
    shown = [event for event in run.trace["traceEvents"] if event.get("cat") == "fault"]
    assert [event["name"] for event in shown if event["ph"] == "i"] == ["crash: mini3"]
    assert sum(event["name"] == "flap: mini1-mini2" for event in shown) == 4
    assert {rank for rank, _ in run.spans} == {0, 1, 2, 3}


def test_the_timeline_and_the_report_show_them(run: Run) -> None:
    figure = run.plot.timeline(0.0, 0.008)
    # One band of the slow node, four of the flap, and the line of the crash; each fault named once.
    assert len(figure.layout.shapes) == 6
    assert {note.text for note in figure.layout.annotations} >= {"slow: mini2", "flap: mini1-mini2", "crash: mini3"}
    assert len(run.plot.timeline(0.0, 0.0015).layout.shapes) == 1
    page = (run.folder / "report.html").read_text()
    assert "<h2>Faults</h2>" in page
    assert "<td class=text>mini1-mini2</td>" in page
    assert "period 1 ms" in page


def test_a_run_without_faults_speaks_of_none(tmp_path: Path) -> None:
    plain = simcluster.run(
        topology="thunderbolt-mesh-4", algorithm="edp", workload="quadratic", stop={"steps": 3}, out=tmp_path / "run"
    )
    assert "faults" not in plain.summary
    assert "<h2>Faults</h2>" not in (plain.folder / "report.html").read_text()


def test_a_join_is_told_by_its_moment_and_drawn_as_the_time_before_it() -> None:
    row = {
        "kind": "join",
        "target": "a",
        "plan": {"node": "a", "at": "2 s"},
        "spells_s": [[0.0, 2.0]],
        "dropped_bytes": 0,
    }
    assert cells(row)[2:4] == ["-", "at 2.00 s"]
    assert cells({**row, "spells_s": [[0.0, None]]})[3] == "never"
    assert bands([row], 10.0)[0][:3] == ("not there before its join: a", 0.0, 2.0)
