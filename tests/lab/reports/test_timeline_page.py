"""The timeline of report.html: any window of the run from its single spans, and honest where it has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.lab.reports.report import render
from simcluster.lab.reports.sections.activity import ActivitySpans
from simcluster.lab.reports.sections.coverage import covered
from simcluster.lab.reports.sections.span_columns import LEVELS, UNKNOWN, SpanColumns, exact_stretches
from simcluster.results import Run
from simcluster.runs.record import Span
from simcluster.runs.spans import Rest
from simcluster.runs.write import write_run
from simcluster.topology import load
from tests.support.browser import needs_browser
from tests.support.devtools import browser
from tests.support.made_up_runs import made_up_config, made_up_run, topology_document


def work(start_s: float, end_s: float, tag: str = "") -> Span:
    return Span("compute", start_s, end_s, -1, tag, 0)


def test_arrays_hold_each_span_by_node_kind_and_start() -> None:
    spans = [(1, work(2.0, 3.0, "b")), (0, Span("send", 1.0, 1.5, 1, "w", 8)), (1, work(0.0, 1.0, "a"))]
    columns = SpanColumns(ActivitySpans(["x", "&lt;y&gt;"], spans, 3.0))
    assert columns.head["counts"] == [0, 1, 0, 2, 0, 0]
    assert columns.head["names"] == ["x", "<y>"]
    assert columns.head["exact"] == [[0.0, 3.0]]
    assert columns.head["parts"] == 0
    content = columns.content
    assert list(np.frombuffer(content, np.float64, 3)) == [1.0, 0.0, 2.0]
    assert list(np.frombuffer(content, np.float32, 3, 24)) == [0.5, 1.0, 1.0]
    assert list(np.frombuffer(content, np.float32, 3, 36)) == [8.0, 0.0, 0.0]
    assert list(np.frombuffer(content, np.int32, 3, 48)) == [1, -1, -1]
    tags = [columns.head["tags"][tag] for tag in np.frombuffer(content, np.uint16, 3, 60)]
    assert tags == ["w", "a", "b"]
    assert len(content) == 22 * 3


def test_too_many_spans_leave_three_stretches_and_the_share_of_every_part() -> None:
    """1,000 spans of 5 ms in 10 s; 90 are kept: each third is at most 30 of them, so 0.3 s."""
    spans = [(0, work(0.01 * at, 0.01 * at + 0.005)) for at in range(1000)]
    columns = SpanColumns(ActivitySpans(["a"], spans, 10.0), most=90)
    stretches = columns.head["exact"]
    assert [from_s for from_s, _ in stretches] == pytest.approx([0.0, 4.85, 9.7], abs=0.011)
    assert [to_s - from_s for from_s, to_s in stretches] == pytest.approx([0.3, 0.3, 0.3], abs=0.011)
    assert 80 <= columns.head["kept"] <= 90
    assert columns.head["spans"] == 1000
    kept, parts = columns.head["kept"], columns.head["parts"]
    levels = np.frombuffer(columns.content, np.uint8, 3 * parts, 22 * kept).reshape(3, parts)
    shares = (levels / LEVELS) ** 2
    assert float(shares[0].mean()) == pytest.approx(0.5, abs=0.01)
    assert not shares[1:].any()


def test_what_was_summed_up_is_a_share_of_work_and_unknown_for_messages() -> None:
    """One span of 1 s is kept of a run of 4 s; the rest worked all of the last second."""
    rest = Rest()
    rest.add("compute", 3.0, 4.0, 0)
    columns = SpanColumns(ActivitySpans(["a"], [(0, work(0.0, 1.0))], 4.0, {0: rest}))
    assert columns.head["ended_s"] == [1.0]
    parts = columns.head["parts"]
    levels = np.frombuffer(columns.content, np.uint8, 3 * parts, 22).reshape(3, parts)
    quarter = parts // 4
    assert (levels[0, :quarter] == LEVELS).all()
    assert not levels[0, quarter : 3 * quarter - 1].any()
    assert (levels[0, -quarter + 2 : -1] >= LEVELS - 1).all()
    assert not levels[1:, :quarter].any()
    assert (levels[1:, quarter:] == UNKNOWN).all()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=12), st.integers(1, 50))
def test_spans_that_overlap_cover_a_moment_once(found: list[tuple[int, int]], bins: int) -> None:
    found.sort()
    moments = {moment for start, length in found for moment in range(start, start + length)}
    starts_s = np.array([start for start, _ in found], dtype=float)
    ends_s = np.array([start + length for start, length in found], dtype=float)
    edges_s = np.linspace(0.0, 60.0, bins + 1)
    shares = covered(starts_s, ends_s, edges_s)
    assert float(np.sum(shares * np.diff(edges_s))) == pytest.approx(len(moments))
    unit = covered(starts_s, ends_s, np.arange(61.0))
    assert {moment for moment, share in enumerate(unit) if share > 0.5} == moments


def test_a_run_that_fits_is_one_stretch() -> None:
    assert exact_stretches(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 2.0, 2) == [[0.0, 2.0]]


@pytest.mark.slow
@pytest.mark.browser
@needs_browser
def test_a_reader_chooses_any_window_and_sees_each_span_of_it(tmp_path: Path) -> None:
    """In the first 4 ms rank 0 sends to 4 nodes that wait, and computes: 9 spans. 50 steps of 38 ms, 1.9 s."""
    topology = load(topology_document())
    run = Run(write_run(tmp_path / "run", made_up_config(), topology, made_up_run(), "0.1.0"))
    (tmp_path / "report.html").write_text(render(run, topology), encoding="utf-8")
    status = "document.getElementById('window-status').textContent"
    with browser(tmp_path / "profile") as tab:
        tab.open((tmp_path / "report.html").as_uri())
        tab.wait_for("document.documentElement.dataset.spans === '1050'")
        assert tab.ask(status).startswith("0 s to 380 ms of 1.9 s")
        tab.ask("""for (const [id, value] of [['window-from', 0.001], ['window-length', 0.002]]) {
            document.getElementById(id).value = value;
            document.getElementById(id).dispatchEvent(new Event('change')); }""")
        assert tab.ask(status).startswith("1 ms to 3 ms of 1.9 s; all 9 spans of the nodes shown")
        tab.ask("document.querySelector('#windows [data-value=\"last steps\"]').click()")
        assert float(tab.ask("document.getElementById('window-from').value")) == pytest.approx(1.52)
        tab.ask("document.getElementById('window-later').click()")
        assert float(tab.ask("document.getElementById('window-from').value")) == pytest.approx(1.52), "that is the end"
        tab.ask("document.getElementById('window-closer').click()")
        assert float(tab.ask("document.getElementById('window-length').value")) == pytest.approx(0.19)
        # The overview: a drag from a half to three quarters of it chooses that window.
        box = tab.ask("""(() => { const view = document.querySelector('#busy canvas'); view.scrollIntoView();
            const box = view.getBoundingClientRect(); return [box.left, box.top, box.width]; })()""")
        left = box[0] + 108
        wide = box[2] - 108 - 6
        for kind, share, buttons in (("mousePressed", 0.5, 1), ("mouseMoved", 0.75, 1), ("mouseReleased", 0.75, 0)):
            tab.call(
                "Input.dispatchMouseEvent", type=kind, x=left + share * wide, y=box[1] + 40, button="left",
                buttons=buttons, clickCount=1,
            )  # fmt: skip
        assert float(tab.ask("document.getElementById('window-from').value")) == pytest.approx(0.95, abs=0.01)
        assert float(tab.ask("document.getElementById('window-length').value")) == pytest.approx(0.475, abs=0.01)
        tab.ask("URL.createObjectURL = (blob) => { window.kept = blob; return '#'; }")
        tab.ask("document.getElementById('window-from').value = 0; document.getElementById('window-length').value = 2;"
                "document.getElementById('window-from').dispatchEvent(new Event('change'))")  # fmt: skip
        tab.ask("document.querySelectorAll('#timeline + .pager .tools button')[1].click()")
        rows = tab.ask("kept.text()").splitlines()
        assert rows[0] == "node,kind,start_s,length_s,share,tag,peer,bytes"
        assert len(rows) == 1 + 1050
        assert tab.complaints == []
