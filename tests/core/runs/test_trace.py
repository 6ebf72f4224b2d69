"""trace.json: what a Chrome trace must obey so that Perfetto shows it."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from simcluster.runs.record import RunRecord, Span
from simcluster.runs.recorder import Recorder
from simcluster.runs.trace import assign_lanes, spans_of
from tests.support.made_up_runs import made_up_run, record_of, trace_of


def broken_rules(trace: dict[str, Any]) -> list[str]:
    """What is wrong with a trace: missing fields, negative times, partial overlap within a thread."""
    wrong = []
    threads = defaultdict(list)
    for event in trace["traceEvents"]:
        wrong += [f"{key} lacks in {event}" for key in ("ph", "ts", "pid", "tid", "name") if key not in event]
        if event["ph"] == "X":
            wrong += [f"dur of {event}"] if not event["dur"] >= 0 else []
            start_ns, length_ns = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            threads[event["pid"], event["tid"]].append((start_ns, -(start_ns + length_ns)))
    for thread, spans in threads.items():
        open_ends: list[int] = []
        for start_ns, minus_end_ns in sorted(spans):
            while open_ends and open_ends[-1] <= start_ns:
                open_ends.pop()
            if open_ends and open_ends[-1] < -minus_end_ns:
                wrong.append(f"thread {thread}: a span from {start_ns} ns overlaps another in part")
            open_ends.append(-minus_end_ns)
    return wrong


def one_node(spans: list[tuple[float, float]], kind: str = "send") -> RunRecord:
    node = Recorder(0, "a", lambda: 0.0)
    for start_s, end_s in spans:
        node.span(kind, start_s, end_s, 1, "x", 8)  # type: ignore[arg-type]
    return record_of(node, elapsed_s=10.0)


def test_the_check_itself_finds_partial_overlap_and_missing_fields() -> None:
    event = {"ph": "X", "name": "x", "pid": 0, "tid": 1, "ts": 0.0, "dur": 2.0}
    assert len(broken_rules({"traceEvents": [event, {**event, "ts": 1.0}]})) == 1
    assert broken_rules({"traceEvents": [event, {**event, "ts": 1.0, "dur": 0.5}]}) == []
    assert len(broken_rules({"traceEvents": [{**event, "dur": -1.0}]})) == 1


def test_a_whole_run_obeys_the_rules_of_the_format() -> None:
    trace = trace_of(made_up_run())
    assert broken_rules(trace) == []
    # Per step: 5 computations; 4 messages each way, each a send and a recv.
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 50 * (5 + 4 * 2 * 2)


times_s = st.floats(0, 1000, allow_nan=False)


@given(st.lists(st.tuples(times_s, st.floats(0, 5)), max_size=40))
def test_spans_of_one_thread_never_overlap_whatever_a_node_does_at_once(
    drawn: list[tuple[float, float]],
) -> None:
    trace = trace_of(one_node([(start_s, start_s + length_s) for start_s, length_s in drawn]))
    assert broken_rules(trace) == []


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=60))
def test_spans_that_touch_stay_on_one_thread_despite_rounding(lengths_s: list[float]) -> None:
    ends_s = [0.0]
    for length_s in lengths_s:
        ends_s.append(ends_s[-1] + length_s)
    spans = [Span("send", a, b, 1, "x", 8) for a, b in itertools.pairwise(ends_s)]
    assert set(assign_lanes(spans)) == {0}


def test_what_overlaps_goes_to_the_first_free_lane() -> None:
    """1 overlaps 0; 2 starts when 0 ends, and takes its lane; 3 overlaps 1 and 2."""
    spans = [Span("send", a, b, 1, "x", 8) for a, b in [(0, 2), (1, 5), (2, 4), (3, 6)]]
    assert assign_lanes(spans) == [0, 1, 0, 2]
    events = trace_of(one_node([(0, 2), (1, 5)]))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["send", "send 2"]


def test_threads_of_a_node_have_numbers_of_their_own_however_many_sends_overlap() -> None:
    node = Recorder(0, "a", lambda: 0.0)
    for _ in range(1500):
        node.span("send", 0.0, 1.0, 1, "x", 8)
    node.span("recv", 0.0, 1.0, 1, "x", 8)
    trace = trace_of(record_of(node, elapsed_s=1.0))
    tids = [event["tid"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(set(tids)) == 1501
    assert broken_rules(trace) == []


def test_nodes_are_processes_named_by_rank_and_name() -> None:
    events = trace_of(made_up_run(steps=1))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "0 mini1", 1: "1 mini2", 2: "2 mini3", 3: "3 pi5", 4: "4 pi4"}


def test_spans_read_back_to_the_nanosecond() -> None:
    record = made_up_run(steps=7)
    read = spans_of(trace_of(record))
    for node in record.nodes:
        written = sorted((span for span in node.spans), key=lambda span: (span.kind, *span[1:]))
        back = sorted((span for rank, span in read if rank == node.rank), key=lambda span: (span.kind, *span[1:]))
        assert [(s.kind, s.peer, s.tag, s.size_bytes) for s in written] == [
            (s.kind, s.peer, s.tag, s.size_bytes) for s in back
        ]
        for a, b in zip(written, back, strict=True):
            assert abs(a.start_s - b.start_s) <= 0.51e-9
            assert abs(a.end_s - b.end_s) <= 0.51e-9


def test_loss_is_a_counter_and_what_is_not_a_number_is_left_out() -> None:
    node = Recorder(0, "a", lambda: 1.5)
    node.metrics(1, {"loss": 0.5, "other": 3.0})
    node.metrics(2, {"loss": float("nan")})
    counters = [e for e in trace_of(record_of(node, elapsed_s=2.0))["traceEvents"] if e["ph"] == "C"]
    assert [(e["name"], e["ts"], e["args"]) for e in counters] == [("loss", 1.5e6, {"loss": 0.5})]
