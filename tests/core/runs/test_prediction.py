"""Predicted against measured: phases of nodes, and messages on links, of two runs made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lab.reports.compare_words import MAX_LINKS, MAX_NODES, describe_links, describe_memory, describe_phases
from simcluster.results import Run, compare
from simcluster.runs.calls import covered_s
from simcluster.runs.comparison.prediction import PredictedTime, lateness, transits
from simcluster.runs.record import Span
from simcluster.runs.recorder import Recorder
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.made_up_runs import made_up_config, record_of, two_nodes


def run(folder: Path, backend: str, computed_s: float, sent_s: float, received_s: float) -> Run:
    """Node a computes, then sends 1 MB to b, which computes from 0 s on as well and receives."""
    a, b = (Recorder(rank, name, lambda: received_s) for rank, name in enumerate("ab"))
    a.span("compute", 0.0, computed_s, -1, "", 0)
    a.span("send", computed_s, sent_s, 1, "x", 1_000_000)
    a.sent(1, 1_000_000)
    b.span("compute", 0.0, 0.5, -1, "", 0)
    b.span("recv", 0.25, received_s, 0, "x", 1_000_000)
    b.received(1_000_000)
    record = record_of(a, b, elapsed_s=received_s)
    config = made_up_config(backend=backend, topology=two_nodes())
    return Run(write_run(folder, config, load(two_nodes()), record, "0.1.0"))


@pytest.fixture
def both(tmp_path: Path) -> tuple[Run, Run]:
    # predicted: computed for 1 s, sent for 1 s, there at 2 s; measured: taken at once, and there at 2.5 s
    return run(tmp_path / "sim", "sim", 1.0, 2.0, 2.0), run(tmp_path / "real", "sockets", 1.0, 1.01, 2.5)


def test_clocks_that_began_late_are_set_so_that_nothing_is_received_before_it_was_sent() -> None:
    # Ranks 1 and 2 began 2 and 3 s after rank 0: what 0 sends takes 0.5 s, and seems to take -1.5 and -2.5 s.
    told = {(0, 1): [-1.5, -1.0], (0, 2): [-2.5], (1, 2): [-0.5], (2, 0): [3.5]}
    late = lateness(told)
    assert [late[rank] for rank in range(3)] == [0.0, 1.5, 2.5]
    assert all(min(times) + late[to] - late[source] >= 0.0 for (source, to), times in told.items())
    assert set(lateness({(0, 1): [0.5], (1, 0): [0.25]}).values()) == {0.0}


def test_memory_is_growth_over_the_simulators_prediction(tmp_path: Path) -> None:
    def nodes(folder: str, backend: str, grown: dict[str, int | None], predicted: int | None) -> Run:
        a, b = (Recorder(rank, name, lambda: 1.0) for rank, name in enumerate("ab"))
        record = record_of(a, b, elapsed_s=1.0)
        for node in record.nodes:
            node.grown_rss_bytes, node.predicted_peak_bytes = grown[node.name], predicted
        config = made_up_config(backend=backend, topology=two_nodes())
        return Run(write_run(tmp_path / folder, config, load(two_nodes()), record, "0.1.0"))

    simulated = nodes("sim", "sim", {"a": None, "b": None}, 1_000_000)
    real = nodes("real", "sockets", {"a": 1_250_000, "b": None}, 2_000_000)
    (pair,) = compare(real, simulated).pairs
    assert pair.memory == {"a": (1_000_000, 1_250_000), "b": (1_000_000, None)}
    told = pair.to_dict()["memory"]
    assert told["a"] == {"predicted_peak_bytes": 1_000_000, "grown_rss_bytes": 1_250_000, "ratio": 1.25}
    assert told["b"]["ratio"] is None
    assert describe_memory(pair.memory) == [
        ["memory", "predicted", "grown", ""],
        ["a", "1 MB", "1.25 MB", "x1.25"],
        ["b", "1 MB", "-", ""],
    ]
    # Of two real runs, the second stands beside its own prediction.
    (pair,) = compare(simulated, nodes("again", "sim", {"a": None, "b": None}, None)).pairs
    assert pair.memory == {}


def test_phases_are_told_apart_and_waiting_is_what_the_summary_says(both: tuple[Run, Run]) -> None:
    (pair,) = compare(*both).pairs
    a, b = pair.phases["a"], pair.phases["b"]
    assert (a["compute"], a["recv"]) == (PredictedTime(1.0, 1.0), PredictedTime(0.0, 0.0))
    assert a["send"] == pytest.approx((1.0, 0.01))
    assert b["recv"] == pytest.approx((1.75, 2.25))
    # All end at 2 s and at 2.5 s: a has computed for 1 s by then, b for 0.5 s.
    assert (a["wait"], b["wait"]) == (pytest.approx((1.0, 1.5)), pytest.approx((1.5, 2.0)))
    simulated, real = (run.summary["nodes"]["a"]["wait_s"] for run in both)
    assert a["wait"] == pytest.approx((simulated, real))


def test_a_links_time_is_from_send_to_receipt(both: tuple[Run, Run]) -> None:
    (pair,) = compare(*both).pairs
    assert pair.transits == {"a-b": pytest.approx((1.0, 1.5))}
    assert pair.transits["a-b"].ratio == pytest.approx(1.5)


def test_the_order_of_the_runs_does_not_swap_prediction_and_measurement(both: tuple[Run, Run]) -> None:
    simulated, real = both
    (pair,) = compare(real, simulated).pairs
    assert pair.transits == {"a-b": pytest.approx((1.0, 1.5))}
    told = compare(real, simulated).to_dict()["pairs"][0]
    assert told["transits"]["a-b"] == pytest.approx({"predicted_s": 1.0, "measured_s": 1.5})
    assert told["phases"]["b"]["wait"] == pytest.approx({"predicted_s": 1.5, "measured_s": 2.0})


def test_two_simulations_predict_nothing(both: tuple[Run, Run], tmp_path: Path) -> None:
    again = run(tmp_path / "again", "sim", 1.0, 2.0, 2.0)
    (pair,) = compare(both[0], again).pairs
    assert (pair.phases, pair.transits) == ({}, {})
    assert "predicted, measured" not in compare(both[0], again).describe()


def test_the_words_have_every_phase_and_link(both: tuple[Run, Run]) -> None:
    text = compare(*both).describe()
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines()}
    # 1 s and 1.5 s computed in all; 1.75 s and 2.25 s received; 1 + 1.5 s and 1.5 + 2 s waited
    assert lines["all nodes"][2:9] == ["1.50", "s", "1.50", "s", "x1", "1.00", "s"]
    assert lines["all nodes"][-5:] == ["2.50", "s", "3.50", "s", "x1.4"]
    assert text.count("send to receipt") == 1


def test_messages_are_matched_by_pair_and_tag_in_order() -> None:
    spans = [
        (0, Span("send", 0.0, 0.1, 1, "x", 1)),
        (0, Span("send", 1.0, 1.1, 1, "x", 1)),
        (0, Span("send", 0.5, 0.6, 1, "y", 1)),
        (0, Span("send", 2.0, 2.1, 1, "x", 1)),  # under way when the run ended
        (1, Span("recv", 0.4, 0.7, 0, "y", 1)),
        (1, Span("recv", 0.0, 0.25, 0, "x", 1)),
        (1, Span("recv", 1.0, 1.5, 0, "x", 1)),
    ]
    assert {pair: sorted(taken) for pair, taken in transits(spans).items()} == {(0, 1): [pytest.approx(0.2), 0.25, 0.5]}


Intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: tuple(sorted(pair))))


@given(Intervals)
def test_time_that_several_spans_cover_counts_once(intervals: list[tuple[float, float]]) -> None:
    covered = {moment for start, end in intervals for moment in range(int(start), int(end))}
    assert covered_s(Span("send", start, end, 1, "", 0) for start, end in intervals) == len(covered)


def test_long_tables_are_cut_and_say_so() -> None:
    times = dict.fromkeys(("compute", "send", "recv", "wait"), PredictedTime(1.0, 2.0))
    rows = describe_phases({f"n{index}": times for index in range(MAX_NODES + 3)})
    assert rows[-1] == ["and 3 more nodes"]
    assert describe_links({f"l{index}": PredictedTime(0.0, 1.0) for index in range(MAX_LINKS + 1)})[-2:] == [
        [f"l{MAX_LINKS - 1}", "0 s", "1.00 s", ""],
        ["and 1 more links"],
    ]
