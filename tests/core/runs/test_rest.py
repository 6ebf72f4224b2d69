"""Spans beyond those that are kept: their sum is right wherever time is cut, and they keep their place in the hash."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lab.reports.report import render
from simcluster.lab.reports.sections.coverage import rest_shares
from simcluster.lab.reports.x_axis import bytes_sent
from simcluster.results import Run
from simcluster.runs import record as records
from simcluster.runs.record import NodeRecord, RunRecord, kept_spans
from simcluster.runs.recorder import Recorder
from simcluster.runs.spans import AT_ONCE, PARTS, Rest
from simcluster.runs.trace import rests_of
from simcluster.runs.write import write_run
from simcluster.topology import loads
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document, trace_of

TOPOLOGY = loads(topology_document())

moments = st.floats(0, 1e6, allow_nan=False)
spans = st.lists(st.tuples(st.sampled_from(["compute", "send", "recv"]), moments, moments, st.integers(0, 10**9)))


def recorded(rows: list[tuple[str, float, float, int]], keep: int) -> Recorder:
    recorder = Recorder(0, "a", lambda: 0.0, keep)
    for kind, start_s, end_s, size_bytes in rows:
        recorder.span(kind, min(start_s, end_s), max(start_s, end_s), 1, "x", size_bytes)  # type: ignore[arg-type]
    return recorder


def keeping(few: NodeRecord, keep: int) -> NodeRecord:
    """The same record from a node that keeps only its first *keep* spans."""
    recorder = Recorder(few.rank, few.name, lambda: 0.0, keep)
    for span in few.spans:
        recorder.span(*span)
    few.spans, few.rest = recorder.record.spans, recorder.record.rest
    return few


@given(spans, st.integers(1, 5))
def test_nothing_is_lost_in_the_sum(rows: list[tuple[str, float, float, int]], keep: int) -> None:
    record = recorded(rows, keep).record
    assert len(record.spans) == min(keep, len(rows))
    assert (record.rest.spans if record.rest else 0) == max(0, len(rows) - keep)
    later = rows[keep:]
    if record.rest is not None:
        assert sum(record.rest.sent_bytes) == sum(size for kind, _, _, size in later if kind == "send")
        worked_s = sum(abs(end_s - start_s) for kind, start_s, end_s, _ in later if kind == "compute")
        assert record.rest.compute_s == pytest.approx(worked_s)
        assert sum(record.rest.busy_s) == pytest.approx(worked_s)
    whole = recorded(rows, 10**9).record
    assert record.compute_s == pytest.approx(whole.compute_s)


def test_parts_are_halved_in_number_until_the_last_span_fits() -> None:
    rest = Rest()
    rest.add("send", 0.0, 1.0, 10)
    # The least power of two of which 256 reach beyond 1 s: 2^-7 s.
    assert rest.width_s == 2**-7
    assert rest.sent_bytes.index(10) == 128
    rest.add("send", 0.0, 5.0, 7)
    assert rest.width_s == 2**-5
    assert (rest.sent_bytes[32], rest.sent_bytes[160]) == (10, 7)
    assert len(rest.busy_s) == len(rest.sent_bytes) == PARTS


def test_work_lies_in_every_part_that_it_touches_for_as_long_as_it_does() -> None:
    rest = Rest()
    rest.add("compute", 0.0, 0.0, 0)
    rest.width_s = 1.0
    rest.add("compute", 1.25, 3.5, 0)
    assert rest.busy_s[:5] == [0.0, 0.75, 1.0, 0.5, 0.0]
    # Two thirds of 0 to 3 s; of 3 to 4 s a half, of which the edges see the part evenly worked.
    assert rest_shares(rest, np.array([0.0, 3.0, 4.0])) == pytest.approx([1.75 / 3, 0.5])


def test_the_hash_depends_on_every_span_and_not_on_when_it_is_asked_for() -> None:
    rows = [("send", float(index), index + 0.5, index) for index in range(2 * AT_ONCE + 20)]
    plain = recorded(rows, 3)
    asked = recorded([], 3)
    for index, (kind, start_s, end_s, size_bytes) in enumerate(rows):
        asked.span(kind, start_s, end_s, 1, "x", size_bytes)  # type: ignore[arg-type]
        if index % 7 == 0:
            assert asked.record.digest
    assert asked.record.digest == plain.record.digest
    for changed in (0, 5, AT_ONCE, len(rows) - 1):
        others = list(rows)
        others[changed] = ("send", float(changed), changed + 0.5, changed + 1)
        assert recorded(others, 3).record.digest != plain.record.digest


def test_memory_does_not_grow_with_spans() -> None:
    recorder = recorded([("recv", float(index), index + 1.0, 8) for index in range(5000)], 10)
    assert len(recorder.record.spans) == 10
    assert recorder._adder is not None
    assert len(recorder._adder._waiting) < AT_ONCE


def test_a_node_whose_summed_up_spans_are_all_receives_has_a_trace_and_a_report(tmp_path: Path) -> None:
    # With 1 span kept of each, nodes 1 and 2 sum up 3 receives: their parts have no width.
    record = made_up_run(steps=3)
    for node in record.nodes:
        received = [span for span in node.spans if span.kind == "recv"]
        node.spans, node.rest = received[:1], Rest(len(received) - 1, 0.0, "0" * 64)
    run = written(tmp_path / "run", record)
    assert {rest.width_s for rest in run.rests.values()} == {0.0}
    assert not [event for event in run.trace["traceEvents"] if event["name"].startswith(("busy", "sent"))]
    assert ends_of_spans(render(run, TOPOLOGY))
    record.begin_at(5.0)
    assert {node.rest.width_s for node in record.nodes if node.rest is not None} == {0.0}


def test_nodes_share_what_a_run_keeps() -> None:
    assert 5 * kept_spans(5) <= records.KEPT_SPANS < 5 * (kept_spans(5) + 1)
    assert kept_spans(1024) == 256


def a_long_run(folder: Path) -> tuple[Run, RunRecord]:
    record = made_up_run(steps=50)
    for node in record.nodes:
        keeping(node, 20)
    return written(folder, record), record


def written(folder: Path, record: RunRecord) -> Run:
    return Run(write_run(folder, made_up_config(), TOPOLOGY, record, "0"))


def ends_of_spans(page: str) -> list[float | None]:
    """When the spans that a report's timeline has of each node end, if the run has later ones."""
    found = re.search(r'"ended_s": ?(\[[^\]]*\])', page)
    assert found is not None
    ends_s: list[float | None] = json.loads(found[1])
    return ends_s


def test_a_run_of_too_many_spans_says_so_in_trace_and_report_and_shows_the_rest(tmp_path: Path) -> None:
    whole = written(tmp_path / "a", made_up_run(steps=50))
    run, record = a_long_run(tmp_path / "b")
    assert len(run.spans) == 5 * 20
    total = len(run.spans) + sum(rest.spans for rest in run.rests.values())
    assert total == len(whole.spans)
    assert f"{total - 100} later spans are summed up" in run.trace["otherData"]["note"]
    assert run.rests == rests_of(trace_of(record)) == {node.rank: node.rest for node in record.nodes}
    assert "note" not in whole.trace["otherData"]
    assert whole.rests == {}
    assert all(end_s > 0 for end_s in ends_of_spans(render(run, TOPOLOGY)))
    assert ends_of_spans(render(whole, TOPOLOGY)) == [None] * 5
    # compute_s is the same; how busy a device was at a time, to the width of a part.
    for name, numbers in whole.summary["nodes"].items():
        assert run.summary["nodes"][name]["compute_s"] == pytest.approx(numbers["compute_s"])
    busy, busy_whole = (np.array(r.plot.busy().data[0].z).mean(axis=1) for r in (run, whole))
    assert busy == pytest.approx(busy_whole, rel=0.01)


def test_bytes_sent_by_a_time_count_what_is_summed_up(tmp_path: Path) -> None:
    whole = written(tmp_path / "a", made_up_run(steps=50))
    run, _ = a_long_run(tmp_path / "b")
    elapsed_s = run.summary["elapsed_s"]
    width_s = max(rest.width_s for rest in run.rests.values())
    times_s = np.linspace(0, elapsed_s, 30)
    ours = bytes_sent(run)(times_s)
    # A send counts at the end of its part, so at most one width late.
    assert (ours <= bytes_sent(whole)(times_s)).all()
    assert (ours >= bytes_sent(whole)(times_s - width_s)).all()
    assert bytes_sent(run)(np.array([elapsed_s + width_s]))[0] == run.summary["bytes_sent"] > 0


def test_counters_tell_viewers_what_is_summed_up() -> None:
    node = recorded([("send", 0.0, 1.0, 10), ("compute", 1.0, 3.0, 0), ("send", 3.0, 4.0, 30)], 1)
    node.finish(None, 4.0)
    events = trace_of(RunRecord([node.record], 4.0, 0.1))["traceEvents"]
    sent = [event for event in events if event["name"] == "sent (bytes)"]
    busy = [event for event in events if event["name"] == "busy (%)"]
    # The first span is kept; 3 s in 256 parts of 2^-6 s, then 4 s in parts of 2^-5 s: the send ends in part 128.
    assert sum(event["args"]["sent (bytes)"] for event in sent) == 30
    assert [event["ts"] for event in sent if event["args"]["sent (bytes)"]] == [128 * 2**-5 * 1e6]
    assert sum(event["args"]["busy (%)"] for event in busy) == pytest.approx(2.0 / 2**-5 * 100)
    assert busy[-1]["args"]["busy (%)"] == 0


def test_a_record_that_is_summed_up_keeps_no_further_span() -> None:
    recorder = recorded([("compute", 0.0, 1.0, 0)], keep=10)
    recorder.sum_up()
    for _ in range(3):
        recorder.span("compute", 2.0, 4.0, -1, "", 0)
    assert len(recorder.record.spans) == 1
    assert recorder.record.rest is not None
    assert recorder.record.rest.spans == 3
    assert recorder.record.compute_s == pytest.approx(1 + 3 * 2)
